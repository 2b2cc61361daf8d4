"""The node packs that a host says it has: a ComfyUI-Manager snapshot, or its list of installed packs."""

from collections.abc import Iterator, Mapping
from typing import Any

from comfyfarm.addresses import mask
from comfyfarm.errors import CatalogueError
from comfyfarm.lock.json_file import read_json
from comfyfarm.workflow.packs.index import InstalledPack, PackIndex, unique_repos
from comfyfarm.workflow.packs.urls import from_aux_id, repo_name, repo_url
from comfyfarm.workflow.packs.versions import VersionKind, classify, plain

_SNAPSHOT = {"git_custom_nodes", "cnr_custom_nodes"}
_REMEDY = "give a snapshot of ComfyUI-Manager, or what its /customnode/installed answers"


def read_host_packs(data: bytes, *, name: str) -> PackIndex:
    """Read a snapshot (`git_custom_nodes`, `cnr_custom_nodes`) or `{folder: {ver, cnr_id, aux_id}}`.

    Raises:
        CatalogueError: it is neither.
    """
    raw = read_json(data, name=name, remedy=_REMEDY)
    if isinstance(raw, dict) and isinstance(raw.get("custom_nodes"), dict):
        raw = raw["custom_nodes"]  # as the Manager writes it for people
    if not isinstance(raw, dict):
        raise CatalogueError(f"{mask(name)}: no list of installed packs; {_REMEDY}")
    if raw.keys() & _SNAPSHOT:
        packs = (*_from_git(_mapping(raw, "git_custom_nodes")), *_from_cnr(_mapping(raw, "cnr_custom_nodes")))
    elif all(isinstance(item, dict) and "ver" in item for item in raw.values()):
        packs = tuple(_from_installed(folder, item) for folder, item in raw.items())
    else:
        raise CatalogueError(f"{mask(name)}: no list of installed packs; {_REMEDY}")
    return PackIndex(installed=packs, repos=unique_repos(pack.url for pack in packs if pack.url is not None))


def _mapping(raw: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = raw.get(key)
    return value if isinstance(value, dict) else {}


def _from_git(raw: Mapping[str, Any]) -> Iterator[InstalledPack]:
    for address, item in raw.items():
        url = repo_url(address)
        if url is not None and isinstance(item, dict):
            yield InstalledPack(repo_name(url), url, _commit(item.get("hash")))


def _from_cnr(raw: Mapping[str, Any]) -> Iterator[InstalledPack]:
    for pack_id, version in raw.items():
        yield InstalledPack(pack_id, id=pack_id, version=version if isinstance(version, str) else None)


def _from_installed(folder: str, item: Mapping[str, Any]) -> InstalledPack:
    ver, aux_id, pack_id = (item.get(key) for key in ("ver", "aux_id", "cnr_id"))
    return InstalledPack(
        folder,
        url=from_aux_id(aux_id) if isinstance(aux_id, str) else None,
        commit=_commit(ver),
        id=pack_id if isinstance(pack_id, str) and pack_id else None,
        version=ver if isinstance(ver, str) and classify(ver) is VersionKind.RELEASE else None,
    )


def _commit(value: Any) -> str | None:
    text = plain(value) if isinstance(value, str) else ""
    return text if classify(text) is VersionKind.COMMIT else None
