"""`--catalog` and `--import`: whatever a user names, opened and read as what its content says it is."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from comfyfarm.addresses import expanded, is_address, local_path, mask, read_bytes, told_errors
from comfyfarm.cli.progress import bytes_so_far_bar
from comfyfarm.errors import CatalogueError, InputError, UsageError
from comfyfarm.lock.catalogue import Catalogue
from comfyfarm.lock.catalogue_file import catalogue_of, parse_document
from comfyfarm.lock.extra_paths import is_extra_paths, roots_of_extra_paths
from comfyfarm.lock.hints import Hint, hints_of
from comfyfarm.lock.mirror_listing import META, META_LIMIT_BYTES, META_NAME, catalogue_of_mirror, is_mirror
from comfyfarm.lock.models_folder import Progress, catalogue_from_dir, catalogue_from_roots
from comfyfarm.lock.snapshots import Imported, import_snapshot, is_snapshot
from comfyfarm.settings import read_settings
from comfyfarm.workflow.findings import Refused, has_errors

LIMIT_BYTES = 256 * 1024 * 1024
_FILE_SUFFIXES = (".json", ".yaml", ".yml", ".toml", ".lock")

Wants = Callable[[str, str], bool]
"""Whether the file of this models folder and path has to be hashed."""


class Found(NamedTuple):
    """What `--import` brings in."""

    imported: Imported
    hints: tuple[Hint, ...]


def open_catalogue(name: str, *, wants: Wants | None = None) -> Catalogue:
    """A catalogue file, a models folder, an `extra_model_paths.yaml`, or a mirror.

    Raises:
        InputError: it cannot be read, or is none of them.
        TryLater: the address did not answer.
    """
    path = local_path(name)  # `file://` names a file of this machine as a path does
    if path is not None:
        folder = expanded(path).absolute()
        return _open_folder(folder, wants) if folder.is_dir() else _open_file(str(path), wants)
    if not name.lower().startswith(("http://", "https://")):
        mirrored = _remote_mirror(name)
        if mirrored is not None:
            return mirrored
    return _open_file(name, wants)


def open_import(name: str) -> Found:
    """A snapshot, a catalogue or lock, or a workflow whose nodes say where their models come from.

    Raises:
        InputError: it cannot be read, or is none of them.
        TryLater: the address did not answer.
    """
    data = read_bytes(name, limit_bytes=LIMIT_BYTES)
    try:
        raw = parse_document(data, name=name)
    except CatalogueError:
        return Found(Imported(), _workflow_hints(data, name))
    if is_snapshot(raw):
        return Found(import_snapshot(raw), ())
    if isinstance(raw, list) or (isinstance(raw, dict) and _is_catalogue(raw)):
        return Found(Imported(catalogue=catalogue_of(raw, name=name)), ())
    return Found(Imported(), _workflow_hints(data, name))


def _is_catalogue(raw: dict[str, Any]) -> bool:
    return "nodes" not in raw and isinstance(raw.get("models") or raw.get("repos"), list)


def _workflow_hints(data: bytes, name: str) -> tuple[Hint, ...]:
    from comfyfarm.workflow.reading.reader import read

    try:
        return hints_of(read(data, name=name).nodes)
    except Refused as exc:
        remedy = "give a snapshot of ComfyUI-Manager or comfy-pack, a catalogue, or a workflow"
        why = ", ".join(found.message for found in exc.findings if has_errors([found]))
        raise CatalogueError(f"{mask(name)}: nothing that can be imported ({why}); {remedy}") from exc


def _open_folder(folder: Path, wants: Wants | None) -> Catalogue:
    if is_mirror(folder):
        metas = ((item.name, item.read_bytes()) for item in sorted((folder / META).glob("*.json")))
        return _of_mirror(metas, str(folder))
    state_dir = read_settings().state_dir
    with _hashing() as progress:
        return catalogue_from_dir(folder, state_dir=state_dir, progress=progress, wants=wants)


def _open_file(name: str, wants: Wants | None) -> Catalogue:
    try:
        data = read_bytes(name, limit_bytes=LIMIT_BYTES)
    except InputError as exc:
        if name.lower().startswith(("http://", "https://")):
            raise InputError(f"{exc}; a mirror cannot be listed over the web, name a catalogue file") from exc
        raise
    raw = parse_document(data, name=name)
    if is_extra_paths(raw):
        if is_address(name):
            raise UsageError(f"{mask(name)}: names folders of another machine; give the file of this one")
        roots = roots_of_extra_paths(raw, file=Path(name))
        with _hashing() as progress:
            return catalogue_from_roots(
                roots, name=name, state_dir=read_settings().state_dir, progress=progress, wants=wants
            )
    if is_snapshot(raw):
        return import_snapshot(raw).catalogue
    return catalogue_of(raw, name=name)


def _remote_mirror(address: str) -> Catalogue | None:
    """The mirror at an address that can be listed; None when a file lies there."""
    if address.lower().endswith(_FILE_SUFFIXES):
        return None
    import fsspec

    with told_errors(address, "listed"):
        files, root = fsspec.core.url_to_fs(address)
        place = f"{root.rstrip('/')}/{META}"
        try:
            names = [item for item in files.ls(place, detail=False) if META_NAME.search(item)]
            # Many small files: fsspec asks for them side by side.
            metas = files.cat(names, on_error="raise") if names else {}
        except FileNotFoundError:
            return None
    return _of_mirror(sorted(metas.items()), address)


def _of_mirror(metas: Iterable[tuple[str, bytes]], address: str) -> Catalogue:
    from comfyfarm.cache.mirrors.entry import mirror_source

    small = ((name, data) for name, data in metas if len(data) <= META_LIMIT_BYTES)
    return catalogue_of_mirror(small, source_of=lambda sha256: mirror_source(address, sha256))


@contextmanager
def _hashing() -> Iterator[Progress]:
    """A bar over the bytes that are hashed."""
    with bytes_so_far_bar("hashing") as show:
        yield lambda _file, done, total: show(done, total)
