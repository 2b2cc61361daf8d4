"""A class map: which repository has which node class, from a JSON file or out of a wheel.

The forms are those of ComfyUI-Manager's `extension-node-map.json` and `custom-node-list.json`. The wheel
that holds them is under the GPL: it is read as data that a user names, never imported and never shipped.
"""

import io
import json
import logging
import re
import struct
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from comfyfarm.addresses import mask
from comfyfarm.errors import CatalogueError
from comfyfarm.workflow.packs.index import PackIndex, grouped, merged, unique_repos
from comfyfarm.workflow.packs.name_pattern import bounded_pattern
from comfyfarm.workflow.packs.urls import repo_url

logger = logging.getLogger(__name__)

MAP_LIMIT_BYTES: Final = 64 * 1024 * 1024
"""Of one JSON file, unpacked. Real ones have 2 MB."""
_MEMBERS = ("extension-node-map.json", "custom-node-list.json")
_ZIP = b"PK\x03\x04"
_BROKEN = (zipfile.BadZipFile, zlib.error, struct.error, RuntimeError, EOFError, OSError, ValueError)
"""All that `zipfile` raises on archives that are damaged, encrypted, or made by someone ill-meaning."""
_REMEDY = "give ComfyUI-Manager's extension-node-map.json, its custom-node-list.json, or the wheel with both"


def read_node_map(data: bytes, *, name: str) -> PackIndex:
    """Read a class map, a list of packs, or a wheel that holds both; what it is follows from the content.

    Raises:
        CatalogueError: it is none of these, or larger than such a file can be.
    """
    if data.startswith(_ZIP):
        parts = [_read(text, f"{mask(name)}: {member}") for member, text in _members(data, mask(name))]
        return merged(parts)
    return _read(data, mask(name))


def _members(data: bytes, shown: str) -> Iterator[tuple[str, bytes]]:
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            found = list(_wanted(archive.infolist()))
            if not found:
                raise CatalogueError(f"{shown}: an archive without {' or '.join(_MEMBERS)}; {_REMEDY}")
            for member in found:
                with archive.open(member) as file:
                    # The directory's word for the size is not believed: it is read up to the limit.
                    yield member.filename, _bounded(file.read(MAP_LIMIT_BYTES + 1), shown)
    except _BROKEN as exc:
        raise CatalogueError(
            f"{shown}: the archive cannot be read ({type(exc).__name__}); fetch it again"
        ) from exc


def _wanted(members: Iterable[zipfile.ZipInfo]) -> Iterator[zipfile.ZipInfo]:
    """Of each wanted file the one that lies highest."""
    ordered = sorted(members, key=lambda member: (member.filename.count("/"), member.filename))
    for name in _MEMBERS:
        yield from [item for item in ordered if item.filename.rpartition("/")[2] == name][:1]


def _bounded(data: bytes, shown: str) -> bytes:
    if len(data) > MAP_LIMIT_BYTES:
        raise CatalogueError(f"{shown}: holds more than {MAP_LIMIT_BYTES} bytes, which no class map does")
    return data


def _read(data: bytes, shown: str) -> PackIndex:
    try:
        raw = json.loads(_bounded(data, shown))
    except (ValueError, RecursionError) as exc:
        raise CatalogueError(f"{shown}: not JSON ({type(exc).__name__}); {_REMEDY}") from exc
    if isinstance(raw, dict) and isinstance(raw.get("custom_nodes"), list):
        return _from_list(raw["custom_nodes"])
    if isinstance(raw, dict):
        index = _from_map(raw)
        if index.repos or not raw:
            return index
    raise CatalogueError(f"{shown}: no class map; {_REMEDY}")


def _from_map(raw: Mapping[str, Any]) -> PackIndex:
    """The form `{address: [[class, …], {"nodename_pattern": …, "preemptions": […]}]}`."""
    rows = [(url, item) for key, item in raw.items() if (url := repo_url(key)) is not None and _is_row(item)]
    about = [(url, item[1] if len(item) > 1 and isinstance(item[1], dict) else {}) for url, item in rows]
    patterns = ((_pattern(more.get("nodename_pattern")), url) for url, more in about)
    return PackIndex(
        classes=grouped((name, url) for url, item in rows for name in _texts(item[0])),
        preempted=grouped((name, url) for url, more in about for name in _texts(more.get("preemptions"))),
        patterns=tuple((pattern, url) for pattern, url in patterns if pattern is not None),
        repos=unique_repos(url for url, _ in rows),
    )


def _is_row(item: Any) -> bool:
    return isinstance(item, list) and bool(item) and isinstance(item[0], list)


def _texts(raw: Any) -> Iterator[str]:
    return (item for item in raw if isinstance(item, str)) if isinstance(raw, list) else iter(())


def _pattern(raw: Any) -> re.Pattern[str] | None:
    if not isinstance(raw, str) or not raw:
        return None
    found = bounded_pattern(raw)
    if found is None:
        logger.warning("a class map has a pattern that is none, or could take long; left out: %.60r", raw)
    return found


def _from_list(raw: list[Any]) -> PackIndex:
    """The form of a list of packs: `id`, `reference` and `files` (addresses) of each."""
    entries = [(item, url) for item in raw if isinstance(item, dict) and (url := _address(item)) is not None]
    ids = ((item["id"].lower(), url) for item, url in entries if isinstance(item.get("id"), str))
    return PackIndex(ids=grouped(ids), repos=unique_repos(url for _, url in entries))


def _address(item: Mapping[str, Any]) -> str | None:
    """What is cloned: a single file goes before the page that describes the pack."""
    files = list(_texts(item.get("files")))
    named = [files[0]] if len(files) == 1 and item.get("install_type") == "git-clone" else []
    reference = item.get("reference")
    urls = (repo_url(text) for text in (*named, reference) if isinstance(text, str))
    return next((url for url in urls if url is not None), None)
