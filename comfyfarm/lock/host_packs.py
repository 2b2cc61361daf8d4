"""The node packs that a host says it has: a ComfyUI-Manager snapshot, or its list of installed packs."""

from collections.abc import Iterable, Mapping
from typing import Any

from comfyfarm.addresses import mask
from comfyfarm.errors import CatalogueError
from comfyfarm.lock.json_file import read_json
from comfyfarm.lock.snapshots import commit_of, is_manager_snapshot, snapshot_packs
from comfyfarm.workflow.packs.index import InstalledPack, PackIndex, unique_repos
from comfyfarm.workflow.packs.urls import from_aux_id
from comfyfarm.workflow.packs.versions import VersionKind, classify

_REMEDY = "give a snapshot of ComfyUI-Manager, or what its /customnode/installed answers"


def read_host_packs(data: bytes, *, name: str) -> PackIndex:
    """Read a snapshot (`git_custom_nodes`, `cnr_custom_nodes`) or `{folder: {ver, cnr_id, aux_id}}`.

    Raises:
        CatalogueError: it is neither.
    """
    raw = read_json(data, name=name, remedy=_REMEDY)
    if is_manager_snapshot(raw):
        return host_index(pack.installed for pack in snapshot_packs(raw))
    inner = raw.get("custom_nodes") if isinstance(raw, dict) else None
    rows = inner if isinstance(inner, dict) else raw  # the Manager wraps what it writes for people
    if not isinstance(rows, dict) or not all(
        isinstance(item, dict) and "ver" in item for item in rows.values()
    ):
        raise CatalogueError(f"{mask(name)}: no list of installed packs; {_REMEDY}")
    return host_index(_from_installed(folder, item) for folder, item in rows.items())


def host_index(packs: Iterable[InstalledPack | None]) -> PackIndex:
    """What is known of node packs where a host has these; None is a pack of which nothing is said."""
    known = tuple(pack for pack in packs if pack is not None)
    return PackIndex(installed=known, repos=unique_repos(pack.url for pack in known if pack.url is not None))


def _from_installed(folder: str, item: Mapping[str, Any]) -> InstalledPack:
    ver, aux_id, pack_id = (item.get(key) for key in ("ver", "aux_id", "cnr_id"))
    return InstalledPack(
        folder,
        url=from_aux_id(aux_id) if isinstance(aux_id, str) else None,
        commit=commit_of(ver),
        id=pack_id if isinstance(pack_id, str) and pack_id else None,
        version=ver if isinstance(ver, str) and classify(ver) is VersionKind.RELEASE else None,
    )
