"""From names to pins: a lock out of a catalogue, and the pins that a workflow needs out of a lock."""

import difflib
from collections.abc import Iterable, Iterator, Sequence

from comfyfarm.errors import NamesMissing
from comfyfarm.ids import Sha256
from comfyfarm.lock.listing import Catalogue, CatalogueEntry, collect
from comfyfarm.lock.lockfile import Lock, LockedModel
from comfyfarm.workflow.embeddings import SUFFIXES
from comfyfarm.workflow.folders import approx_vae, modern
from comfyfarm.workflow.references import Kind, Reference, References, Unclassified

_Need = Reference | Unclassified
_NEAR = 3


def make_lock(
    references: References | Sequence[References],
    catalogue: Catalogue,
    *,
    schema_sha256: Sha256 | None = None,
    comfyui: str | None = None,
) -> Lock:
    """Pin every reference of one or more workflows to what the catalogue says of its name.

    Raises:
        NamesMissing: names that the catalogue has not, all of them at once, with near ones.
    """
    found = _resolve(_needs(references), catalogue, "the catalogue does not have these models:")
    return Lock(models=tuple(map(_locked, found)), schema_sha256=schema_sha256, comfyui=comfyui)


def pin(
    references: References,
    lock: Lock | None,
    *,
    workflow: str = "WORKFLOW",
    lock_name: str = "comfyfarm.lock",
) -> tuple[LockedModel, ...]:
    """The models of the lock that a workflow needs. A reference that is not locked is an error.

    `workflow`, `lock_name`: what the files are called, for the command in the message.

    Raises:
        NamesMissing: references without a pin, all of them at once, and the command to run.
    """
    needs = _needs(references)
    if not needs:
        return ()
    models = lock.models if lock is not None else ()
    by_key = {(modern(model.folder), model.path): model for model in models}
    entries = (CatalogueEntry.model_validate(model.model_dump()) for model in by_key.values())
    state = f"{lock_name} does not pin" if lock is not None else f"there is no {lock_name} to pin"
    command = f"comfyfarm lock {workflow} --catalog CATALOGUE -o {lock_name}"
    message = f"{state} these models of {workflow}; run `{command}`:"
    found = _resolve(needs, collect(entries, name=lock_name), message)
    return tuple(by_key[entry.key] for entry in found)


def _needs(references: References | Sequence[References]) -> tuple[_Need, ...]:
    several = [references] if isinstance(references, References) else references
    needs: list[_Need] = []
    for each in several:
        needs.extend(item for item in each.references if item.active)
        needs.extend(each.unclassified)
    return tuple(needs)


def _resolve(needs: Iterable[_Need], catalogue: Catalogue, message: str) -> tuple[CatalogueEntry, ...]:
    found: dict[tuple[str, str], CatalogueEntry] = {}
    missing: dict[str, list[_Need]] = {}
    for need in needs:
        entries = _match(need, catalogue)
        found.update({entry.key: entry for entry in entries})
        if not entries:
            missing.setdefault(_title(need), []).append(need)
    if missing:
        names = [_missing_line(title, who, catalogue) for title, who in missing.items()]
        raise NamesMissing(message, names)
    return tuple(found[key] for key in sorted(found))


def _match(need: _Need, catalogue: Catalogue) -> tuple[CatalogueEntry, ...]:
    """The files that a reference stands for; () when any of them is not there."""
    if isinstance(need, Unclassified):
        return catalogue.named(need.path)
    folder, path = need.folder, need.path
    if folder is None or path is None:
        return ()
    if need.kind is Kind.DIRECTORY:
        return tuple(e for e in catalogue.in_folder(folder) if e.path.startswith(f"{path}/"))
    if need.kind is Kind.EMBEDDING:
        return _first(catalogue.get(folder, path + suffix) for suffix in ("", *SUFFIXES))
    if folder == "vae_approx":
        return _approx_vae(path, catalogue)
    return _first([catalogue.get(folder, path)])


def _first(entries: Iterable[CatalogueEntry | None]) -> tuple[CatalogueEntry, ...]:
    return next(((entry,) for entry in entries if entry is not None), ())


def _approx_vae(path: str, catalogue: Catalogue) -> tuple[CatalogueEntry, ...]:
    """`taesd` is an encoder and a decoder, of any suffix; single files have their full name."""
    exact = catalogue.get("vae_approx", path)
    if exact is not None:
        return (exact,)
    here = catalogue.in_folder("vae_approx")
    parts = [_first(e for e in here if e.path.rpartition(".")[0] == stem) for stem in approx_vae(path)]
    return tuple(entry for part in parts for entry in part) if all(parts) else ()


def _locked(entry: CatalogueEntry) -> LockedModel:
    """Under the folder's key of today, so that one name has one place in every lock."""
    return LockedModel(
        folder=entry.key[0], path=entry.path, sha256=entry.sha256, size=entry.size, sources=entry.sources
    )


def _title(need: _Need) -> str:
    if isinstance(need, Unclassified):
        return f"(folder not known)/{need.path}"
    name = need.path or need.name or "a model that the class loads by itself"
    return f"{need.folder}/{name}" if need.folder is not None else f"{name} ({need.kind})"


def _missing_line(title: str, who: Sequence[_Need], catalogue: Catalogue) -> str:
    places = dict.fromkeys(f"node {n.node} {n.class_type}.{n.input}" for n in who)
    return f"{title} ({', '.join(places)}){_hint(who[0], catalogue)}"


def _hint(need: _Need, catalogue: Catalogue) -> str:
    near = list(_near(need, catalogue))
    return f"; near: {', '.join(near)}" if near else ""


def _near(need: _Need, catalogue: Catalogue) -> Iterator[str]:
    """The same file elsewhere first, then names that are written much alike."""
    base = (need.path or "").rpartition("/")[2].casefold()
    names = {f"{e.key[0]}/{e.path}": e for e in catalogue.entries}
    same = [name for name, e in names.items() if e.path.rpartition("/")[2].casefold() == base]
    alike = difflib.get_close_matches(_title(need), list(names), n=_NEAR)
    yield from list(dict.fromkeys([*same, *alike]))[:_NEAR]
