"""Whether the files of a lock are where they should be, as they should be, and are all that is needed."""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from comfyfarm.addresses import local_path, mask
from comfyfarm.errors import FarmError, InputError, TryLater
from comfyfarm.lock.catalogue import Catalogue
from comfyfarm.lock.hash_store import HashStore
from comfyfarm.lock.lockfile import Lock, LockedModel
from comfyfarm.lock.pins import pin, run_make
from comfyfarm.lock.resolve import Unresolved
from comfyfarm.workflow.findings import Finding, Severity, error, info, warning
from comfyfarm.workflow.packs.pack import Pack
from comfyfarm.workflow.packs.urls import repo_key, repo_url
from comfyfarm.workflow.references.find import References
from comfyfarm.workflow.schema import NodeSchema

SizeAt = Callable[[str], int | None]
"""Size in bytes of what lies at an address; None when there is nothing.

Raises `TryLater` where there is no answer, and `InputError` where access is denied.
"""

SILENT = "source_silent"
"""Code of a source that gave no answer: the same call may succeed later."""
DENIED = "source_denied"
"""Code of a source that lets nobody in with these credentials."""
_REMEDY = "bring the file back, or look the name up anew: comfyfarm lock update"
_BLOBS_REMEDY = "fill a cache with comfyfarm hydrate, a mirror with comfyfarm mirror add"
_FOLDER_REMEDY = "bring the file there, or have it linked there: comfyfarm hydrate --link-into"
_MAKE_AGAIN = "make the lock again, of every workflow that shares it"
_UNUSED = "name every workflow that shares the lock, or make it again without that model"


def check_sources(lock: Lock, *, size_at: SizeAt, hashes: HashStore) -> Iterator[Finding]:
    """Every source that the lock names: files of this machine by their bytes, addresses by their size."""
    for model in lock.models:
        if not model.sources:
            message = f"{model.title} has no source, so that there is nothing to look at"
            remedy = "name the mirror or models folder that has it with --against, or make the lock again"
            yield warning("no_source", message, remedy)
        each = [list(_source(model, source, size_at, hashes)) for source in model.sources]
        is_there = not all(each)
        for finding in (finding for findings in each for finding in findings):
            quiet = (
                finding.code in {SILENT, DENIED} and is_there
            )  # another source has the file: that is enough
            yield finding.model_copy(update={"severity": Severity.WARNING}) if quiet else finding


def check_models_folder(lock: Lock, found: Catalogue, *, name: str) -> Iterator[Finding]:
    """A models folder, read as a catalogue: each locked name must have the locked content."""
    for model in lock.models:
        entries = found.candidates(model.folder, model.path)
        if not entries:
            yield _missing(model, f"{name} does not have it", _FOLDER_REMEDY)
        elif entries[0].sha256 != model.sha256:
            yield _differs(
                model, f"{name} has {entries[0].sha256[:12]}… of {entries[0].size} bytes", _FOLDER_REMEDY
            )


def check_blobs(lock: Lock, *, name: str, size_at: SizeAt, hashes: HashStore | None) -> Iterator[Finding]:
    """A mirror or cache, by its blobs: by their bytes where they are files of this machine, else by size.

    `size_at` takes a SHA-256 here; `hashes` is None for a place that is elsewhere, and `name` its address.
    """
    for model in {model.sha256: model for model in lock.models}.values():
        if hashes is not None:
            yield from _file(
                model, Path(name) / "sha256" / model.sha256[:2] / model.sha256, hashes, _BLOBS_REMEDY
            )
            continue
        try:
            size = size_at(model.sha256)
        except (TryLater, InputError) as exc:
            yield _unanswered(model, exc)
            if isinstance(exc, TryLater):
                return  # of the others it would be the same
            continue
        if size is None:
            yield _missing(model, f"{mask(name)} does not have it", _BLOBS_REMEDY)
        elif size != model.size:
            yield _differs(model, f"{mask(name)} has {size} bytes of it", _BLOBS_REMEDY)


def check_cover(
    lock: Lock, workflows: Iterable[tuple[str, References]], *, lock_name: str
) -> Iterator[Finding]:
    """Whether the lock pins all that these workflows need, and nothing that none of them does."""
    used: set[tuple[str, str]] = set()
    whole = True
    several = [(mask(name), references) for name, references in workflows]
    remedy = run_make([name for name, _ in several], lock_name)
    for name, references in several:
        try:
            pinned = pin(references, lock, workflows=[name], lock_name=lock_name)
        except Unresolved as exc:
            whole = False
            yield from exc.findings
            for one in exc.names:
                yield _not_locked(name, one, remedy)
        else:
            used |= {model.modern_key for model in pinned}
    for model in lock.models if whole else ():
        if model.modern_key not in used:
            message = f"no workflow needs {model.title} of those that were named"
            yield info("unused_pin", message, _UNUSED)


def _not_locked(workflow: str, line: str, remedy: str) -> Finding:
    """`line`: the name, who wants it, and behind a `;` what is written much alike in the lock."""
    what, mark, near = line.partition("; near: ")
    remedy += f"; or correct the name: {near} in the lock" if mark else ""
    return error("not_locked", f"{workflow} needs {what}, which is not locked", remedy)


def check_packs(lock: Lock, needed: Iterable[Pack], *, workflow: str) -> Iterator[Finding]:
    """Whether the lock has the node packs of a workflow, at the commits that its file names."""
    pinned = {repo_key(repo_url(pack.url) or pack.url): pack for pack in lock.packs}
    known = {item.name for item in lock.missing if item.kind == "pack"}
    for row in {row.url: row for row in needed if row.url is not None}.values():
        pack = pinned.get(repo_key(row.url or ""))
        if pack is None and (row.pack not in known or row.commit is not None):
            message = f"{workflow} needs the node pack {row.url}, which is not locked"
            if row.pack in known:
                message += f": its commit was not known then, and is {row.commit}"
            yield error("not_locked", message, _MAKE_AGAIN)
        elif pack is not None and row.commit not in {None, pack.commit}:
            message = f"{workflow} was saved with {row.url} at {row.commit}, and {pack.commit} is locked"
            yield warning(
                "pack_differs", message, "try the workflow with the locked one, or make the lock again"
            )


def check_schema(lock: Lock, schema: NodeSchema) -> Iterator[Finding]:
    """Whether the node classes are those that the lock was made with."""
    if lock.schema_sha256 is not None and lock.schema_sha256 != schema.sha256:
        message = f"the lock was made with other node classes than those of {schema.name}"
        yield warning(
            "schema_differs", message, "check the workflows against these classes: comfyfarm preflight"
        )


def _source(model: LockedModel, source: str, size_at: SizeAt, hashes: HashStore) -> Iterator[Finding]:
    path = local_path(source)
    return _sized(model, source, size_at) if path is None else _file(model, path, hashes)


def _file(model: LockedModel, path: Path, hashes: HashStore, remedy: str = _REMEDY) -> Iterator[Finding]:
    try:
        size = path.stat().st_size
        if size != model.size:
            yield _differs(model, f"{path} has {size} bytes", remedy)
            return
        sha256, _ = hashes.of(path)
    except TryLater as exc:
        yield _unanswered(model, exc)
    except FileNotFoundError:
        yield _missing(model, f"{path} is not there", remedy)
    except OSError as exc:
        yield _missing(model, f"{path} cannot be read ({exc.strerror})", remedy)
    else:
        if sha256 != model.sha256:
            yield _differs(model, f"{path} has the content {sha256[:12]}…", remedy)


def _sized(model: LockedModel, source: str, size_at: SizeAt) -> Iterator[Finding]:
    try:
        size = size_at(source)
    except (TryLater, InputError) as exc:
        yield _unanswered(model, exc)
        return
    if size is None:
        yield _missing(model, f"{mask(source)} is not there")
    elif size != model.size:
        yield _differs(model, f"{mask(source)} has {size} bytes")


def _missing(model: LockedModel, what: str, remedy: str = _REMEDY) -> Finding:
    return error("file_missing", f"{model.title}: {what}", remedy)


def _differs(model: LockedModel, what: str, remedy: str = _REMEDY) -> Finding:
    pinned = f"{model.sha256[:12]}… of {model.size} bytes is locked"
    return error("content_differs", f"{model.title}: {what}, and {pinned}", remedy)


def _unanswered(model: LockedModel, exc: FarmError) -> Finding:
    message = f"{model.title}: {exc}"
    if isinstance(exc, TryLater):
        return error(SILENT, message, "try again later")
    return error(DENIED, message, "or name a place that has it with --against")
