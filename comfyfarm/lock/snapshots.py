"""What other tools have written down: ComfyUI-Manager's snapshots and comfy-pack's `snapshot.json`.

Both are read as one form: comfy-pack's first versions list `custom_nodes` and `models`, its later ones are a
snapshot of the Manager's with `models` beside.
"""

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, JsonValue

from comfyfarm.addresses import is_address
from comfyfarm.lock.listing import Catalogue, CatalogueEntry, collect
from comfyfarm.lock.lockfile import LockedPack, Missing
from comfyfarm.lock.paths import is_safe
from comfyfarm.workflow.packs.urls import repo_key, repo_name, repo_url

_COMMIT = re.compile(r"^[0-9a-f]{40}$")
_SHA256 = re.compile(r"^[0-9a-f]{64}$")
_MANAGER = {"git_custom_nodes", "cnr_custom_nodes"}
_MODELS = "models/"


class Imported(BaseModel):
    """What a file of another tool gives a lock."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    catalogue: Catalogue = Catalogue()
    packs: tuple[LockedPack, ...] = ()
    missing: tuple[Missing, ...] = ()
    python: JsonValue = None
    comfyui: str | None = None
    """A commit of ComfyUI."""


def is_snapshot(raw: Any) -> bool:
    """Whether a parsed document is a snapshot of either tool."""
    raw = _inner(raw)
    if not isinstance(raw, Mapping):
        return False
    has_packs = isinstance(raw.get("custom_nodes"), list) and "comfyui" in raw
    return bool(_MANAGER & raw.keys()) or has_packs or _lists_files(raw.get("models"))


def import_snapshot(raw: Any) -> Imported:
    """Packs, Python packages, ComfyUI's commit and models of a snapshot. Disabled packs are left out.

    A model whose hash comfy-pack made up (of the name, when it bundles files) has none.
    """
    raw = _inner(raw)
    rows = [*_git_rows(raw.get("git_custom_nodes")), *_listed_rows(raw.get("custom_nodes"))]
    packs = {repo_key(pack.url): pack for pack in rows if isinstance(pack, LockedPack)}
    missing = [row for row in rows if isinstance(row, Missing)]
    commit = str(raw.get("comfyui") or "")
    return Imported(
        catalogue=collect(_entries(raw.get("models"))),
        packs=tuple(packs.values()),
        missing=(*missing, *_registry_rows(raw.get("cnr_custom_nodes"))),
        python=_python(raw),
        comfyui=commit if _COMMIT.match(commit) else None,
    )


def _inner(raw: Any) -> Any:
    """The Manager wraps what it writes as YAML in `custom_nodes`."""
    inner = raw.get("custom_nodes") if isinstance(raw, Mapping) else None
    return inner if isinstance(inner, Mapping) and _MANAGER & inner.keys() else raw


def _lists_files(models: Any) -> bool:
    return isinstance(models, list) and any(
        isinstance(item, Mapping) and "filename" in item and "folder" not in item for item in models
    )


def _git_rows(raw: Any) -> Iterator[LockedPack | Missing]:
    for url, pack in raw.items() if isinstance(raw, Mapping) else ():
        if isinstance(pack, Mapping) and not pack.get("disabled"):
            yield _row(url, pack.get("hash"))


def _listed_rows(raw: Any) -> Iterator[LockedPack | Missing]:
    for pack in raw if isinstance(raw, list) else ():
        if isinstance(pack, Mapping) and not pack.get("disabled"):
            yield _row(pack.get("url"), pack.get("commit_hash"))


def _row(url: Any, commit: Any) -> LockedPack | Missing:
    address = repo_url(url) if isinstance(url, str) else None
    if address is None:
        return Missing(kind="pack", name=_shown(url), reason="the snapshot does not say where it comes from")
    if not isinstance(commit, str) or not _COMMIT.match(commit):
        return Missing(
            kind="pack", name=repo_name(address), reason=f"the snapshot has no commit of {address}"
        )
    return LockedPack(name=repo_name(address), url=address, commit=commit)


def _registry_rows(raw: Any) -> Iterator[Missing]:
    for name, version in raw.items() if isinstance(raw, Mapping) else ():
        reason = f"the snapshot has release {_shown(version)} of the registry, and no commit"
        yield Missing(kind="pack", name=_shown(name), reason=reason)


def _shown(value: Any) -> str:
    return str(value)[:80] or "(without a name)"


def _python(raw: Mapping[str, Any]) -> JsonValue:
    pips = raw.get("pips")
    packages: list[JsonValue] = [*sorted(str(one) for one in pips)] if isinstance(pips, Mapping) else []
    version = raw.get("python")
    found: dict[str, JsonValue] = {"source": "snapshot"}
    if isinstance(version, str):
        found["version"] = version
    if packages:
        found["packages"] = packages
    return found if len(found) > 1 else None


def _entries(models: Any) -> Iterator[CatalogueEntry]:
    for model in models if isinstance(models, list) else ():
        if not isinstance(model, Mapping):
            continue
        name = str(model.get("filename") or "")
        sha256, size = model.get("sha256"), model.get("size")
        folder, _, path = name.replace("\\", "/").removeprefix(_MODELS).partition("/")
        if not isinstance(sha256, str) or type(size) is not int or size < 0 or not is_safe(folder, path):
            continue
        if _SHA256.match(sha256) and sha256 != hashlib.sha256(name.encode()).hexdigest():
            sources = tuple(dict.fromkeys(_sources(model.get("source"))))
            yield CatalogueEntry(folder=folder, path=path, sha256=sha256, size=size, sources=sources)


def _sources(source: Any) -> Iterable[str]:
    """At a hub the file at its commit; else the address for downloads. Older files have a path there."""
    if not isinstance(source, Mapping):
        return
    repo, commit, path = (source.get(key) for key in ("repo", "commit", "path"))
    at_hub = source.get("source") == "huggingface"
    if at_hub and isinstance(repo, str) and isinstance(commit, str) and isinstance(path, str):
        yield f"https://huggingface.co/{repo}/resolve/{commit}/{path}"
    address = source.get("download_url")
    if isinstance(address, str) and is_address(address):
        yield address
