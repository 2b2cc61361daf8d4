"""From names to pins: a lock out of a catalogue, and the pins that a workflow needs out of a lock."""

import shlex
from collections.abc import Iterable, Sequence

from pydantic import JsonValue

from comfyfarm.ids import Sha256
from comfyfarm.lock.catalogue import Catalogue, CatalogueEntry, collect
from comfyfarm.lock.hints import Hint, SizeOf
from comfyfarm.lock.lockfile import Lock, LockedModel, LockedPack, Missing
from comfyfarm.lock.match import Need
from comfyfarm.lock.resolve import resolve
from comfyfarm.workflow.findings import Finding, warning
from comfyfarm.workflow.references.find import References

_NOT_THERE = "the catalogue does not have these models:"
_MOST_NAMED = 3


def make_lock(
    references: References | Sequence[References],
    catalogue: Catalogue,
    *,
    schema_sha256: Sha256 | None = None,
    comfyui: str | None = None,
    packs: Iterable[LockedPack] = (),
    missing: Iterable[Missing] = (),
    python: JsonValue = None,
    hints: Sequence[Hint] = (),
    pinned: Lock | None = None,
    size_of: SizeOf | None = None,
    warnings: list[Finding] | None = None,
) -> Lock:
    """Pin every reference of one or more workflows to what the catalogue says of its name.

    Args:
        references: of each workflow.
        catalogue: what content stands behind which name.
        schema_sha256: digest of the node classes that the workflows were read with.
        comfyui: version of the ComfyUI that has them.
        packs: node packs with their commits.
        missing: what is known to be needed and not pinned: packs without a commit, and the like.
        python: the solved environment.
        hints: what the workflow files say of their models themselves.
        pinned: an earlier lock: it decides where a name stands for several contents.
        size_of: asks an address of a hint for the size of its file; without it such hints make no entries.
        warnings: takes what people should see.

    Raises:
        Unresolved: a `NamesMissing`: names that the catalogue has not, with near ones, and names that stand
            for several contents, all of them at once.
    """
    found = resolve(needs_of(references), catalogue, hints=hints, pinned=pinned, size_of=size_of)
    if warnings is not None:
        warnings.extend(found.warnings)
    found.check(_NOT_THERE, catalogue)
    return Lock(
        models=tuple(found.models[key] for key in sorted(found.models)),
        repos=tuple(found.repos.values()),
        packs=tuple(packs),
        python=python,
        comfyui=comfyui,
        schema_sha256=schema_sha256,
        missing=(*found.missing.values(), *missing),
    )


def pin(
    references: References,
    lock: Lock | None,
    *,
    workflows: Sequence[str] = ("WORKFLOW",),
    lock_name: str = "comfyfarm.lock",
) -> tuple[LockedModel, ...]:
    """The models of the lock that a workflow needs. A reference that is not locked is an error.

    What has no name to pin (`Kind.IMPLICIT`) is none: the lock lists it as missing.

    Args:
        references: of the workflow.
        lock: None when there is none.
        workflows: what the files are called, for the command in the message.
        lock_name: likewise.

    Raises:
        NamesMissing: references without a pin, all of them at once, and the command to run.
    """
    needs = needs_of(references)
    if not needs:
        return ()
    catalogue, by_key = _pins(lock)
    state = f"{lock_name} does not pin" if lock is not None else f"there is no {lock_name} to pin"
    remedy = run_make(workflows, lock_name)
    found = resolve(needs, catalogue)
    found.check(f"{state} these models of {' '.join(workflows)}; {remedy}:", catalogue)
    # What the workflow calls a little differently was given that name, and is not in the lock as such.
    return tuple(by_key.get(key, found.models[key]) for key in sorted(found.models))


def run_make(workflows: Sequence[str], lock_name: str) -> str:
    """What to do where a lock does not cover workflows: a lock is made whole, never added to."""
    files = " ".join(shlex.quote(workflow) for workflow in workflows)
    command = f"comfyfarm lock {files} --catalog CATALOGUE -o {shlex.quote(lock_name)}"
    return f"run `{command}`, and name every workflow there that shares the lock"


def dropped_pins(before: Lock, lock: Lock, *, name: str) -> tuple[Finding, ...]:
    """Says what the lock that is written over pins and the new one does not.

    `name`: what the file is called.
    """
    kept = {model.modern_key for model in lock.models}
    gone = sorted(model.title for model in before.models if model.modern_key not in kept)
    if not gone:
        return ()
    named = ", ".join(gone[:_MOST_NAMED]) + (", …" if len(gone) > _MOST_NAMED else "")
    count, verb = ("1 model", "is") if len(gone) == 1 else (f"{len(gone)} models", "are")
    message = f"{count} that {name} pinned before {verb} not in it any more: {named}"
    return (warning("pins_dropped", message, "name every workflow that shares it"),)


def _pins(lock: Lock | None) -> tuple[Catalogue, dict[tuple[str, str], LockedModel]]:
    if lock is None:
        return Catalogue(), {}
    by_key = {model.modern_key: model for model in lock.models}
    entries = (CatalogueEntry.model_validate(model.model_dump()) for model in by_key.values())
    return collect(entries).model_copy(update={"repos": lock.repos}), by_key


def needs_of(references: References | Sequence[References]) -> tuple[Need, ...]:
    """What of the references has to be there for a run: the active ones, and what may be a model."""
    several = [references] if isinstance(references, References) else references
    needs: list[Need] = []
    for each in several:
        needs.extend(item for item in each.references if item.active)
        needs.extend(each.unclassified)
    return tuple(needs)
