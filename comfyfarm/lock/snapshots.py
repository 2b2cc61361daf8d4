"""What other tools have written down: ComfyUI-Manager's snapshots and comfy-pack's `snapshot.json`.

Both are read as one form: comfy-pack's first versions list `custom_nodes` and `models`, its later ones are a
snapshot of the Manager's with `models` beside.
"""

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict, JsonValue

from comfyfarm.addresses import is_address, mask
from comfyfarm.lock.catalogue import Catalogue, CatalogueEntry, collect
from comfyfarm.lock.lockfile import LockedPack, Missing
from comfyfarm.lock.paths import is_safe
from comfyfarm.workflow.findings import Finding, warning
from comfyfarm.workflow.packs.index import InstalledPack
from comfyfarm.workflow.packs.urls import repo_key, repo_name, repo_url
from comfyfarm.workflow.packs.versions import VersionKind, classify, plain

_COMMIT = re.compile(r"^[0-9a-f]{40}$")
_SHA256 = re.compile(r"^[0-9a-f]{64}$")
_MANAGER = {"git_custom_nodes", "cnr_custom_nodes"}
_MODELS = "models/"
_PIN = re.compile(r"[A-Za-z0-9][\w.-]{0,99}(?:\[[\w,.-]{1,99}\])?==[\w.+!-]{1,99}")
_PACKAGE = re.compile(r"-{0,2}[A-Za-z][\w-]{0,30}(?=\s|=|$)")
"""What an entry that is no pin begins with. No more of it is shown: what follows may hold a password."""
_VERSION = re.compile(r"\d[\w.+-]{0,59}")
_MOST_NAMED = 10


@dataclass(frozen=True, slots=True)
class SnapshotPack:
    """A node pack as a snapshot has it, disabled ones left out."""

    called: str
    """Its address or its id in the registry, as it is written."""
    url: str | None = None
    """None where the snapshot says no address that is one."""
    commit: str | None = None
    """40 hex digits."""
    version: str | None = None
    """Its release; such a pack is of the registry."""
    is_registered: bool = False
    """Whether it is a release of the registry rather than a clone."""

    @property
    def installed(self) -> InstalledPack | None:
        """The pack as a host's; None where nothing says which it is."""
        if self.is_registered:
            return InstalledPack(self.called, id=self.called, version=self.version)
        return InstalledPack(repo_name(self.url), self.url, self.commit) if self.url is not None else None

    @property
    def pinned(self) -> LockedPack | Missing:
        """The pack for a lock, or why it cannot be pinned."""
        name = repo_name(self.url) if self.url is not None else _shown(self.called)
        if self.url is not None and self.commit is not None:
            return LockedPack(name=name, url=self.url, commit=self.commit)
        if self.is_registered:
            why = f"the snapshot has release {_shown(self.version)} of the registry, and no commit"
        elif self.url is not None:
            why = f"the snapshot has no commit of {self.url}"
        else:
            why = "the snapshot does not say where it comes from"
        return Missing(kind="pack", name=name, reason=why)


class Imported(BaseModel):
    """What a file of another tool gives a lock."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    catalogue: Catalogue = Catalogue()
    packs: tuple[LockedPack, ...] = ()
    installed: tuple[InstalledPack, ...] = ()
    """The same packs as a host's, whose commits count for workflows that name none."""
    missing: tuple[Missing, ...] = ()
    python: JsonValue = None
    comfyui: str | None = None
    """A commit of ComfyUI."""
    findings: tuple[Finding, ...] = ()
    """What was left out."""


def is_snapshot(raw: Any) -> bool:
    """Whether a parsed document is a snapshot of either tool."""
    if is_manager_snapshot(raw):
        return True
    if not isinstance(raw, Mapping):
        return False
    has_packs = isinstance(raw.get("custom_nodes"), list) and "comfyui" in raw
    return has_packs or _lists_files(raw.get("models"))


def is_manager_snapshot(raw: Any) -> bool:
    """Whether a parsed document has the Manager's lists of node packs."""
    inner = _inner(raw)
    return isinstance(inner, Mapping) and bool(_MANAGER & inner.keys())


def snapshot_packs(raw: Any) -> tuple[SnapshotPack, ...]:
    """The enabled node packs of a snapshot of either tool: clones first, then releases of the registry."""
    raw = _inner(raw)
    return (
        *_clones(raw.get("git_custom_nodes")),
        *_listed(raw.get("custom_nodes")),
        *_releases(raw.get("cnr_custom_nodes")),
    )


def import_snapshot(raw: Any) -> Imported:
    """Packs, Python packages, ComfyUI's commit and models of a snapshot. Disabled packs are left out.

    A model whose hash comfy-pack made up (of the name, when it bundles files) has none.
    """
    rows = [(pack, pack.pinned) for pack in snapshot_packs(raw)]
    packs = {repo_key(pin.url): (pack, pin) for pack, pin in rows if isinstance(pin, LockedPack)}
    raw = _inner(raw)
    commit = str(raw.get("comfyui") or "")
    return Imported(
        catalogue=collect(_entries(raw.get("models"))),
        packs=tuple(pin for _, pin in packs.values()),
        installed=tuple(host for pack, _ in packs.values() if (host := pack.installed) is not None),
        missing=tuple(pin for _, pin in rows if isinstance(pin, Missing)),
        python=_python(raw),
        findings=tuple(_unpinned(raw.get("pips"))),
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


def _clones(raw: Any) -> Iterator[SnapshotPack]:
    for url, pack in raw.items() if isinstance(raw, Mapping) else ():
        if isinstance(pack, Mapping) and not pack.get("disabled"):
            yield _clone(url, pack.get("hash"))


def _listed(raw: Any) -> Iterator[SnapshotPack]:
    for pack in raw if isinstance(raw, list) else ():
        if isinstance(pack, Mapping) and not pack.get("disabled"):
            yield _clone(pack.get("url"), pack.get("commit_hash"))


def _clone(url: Any, commit: Any) -> SnapshotPack:
    return SnapshotPack(str(url), repo_url(url) if isinstance(url, str) else None, commit_of(commit))


def _releases(raw: Any) -> Iterator[SnapshotPack]:
    for name, version in raw.items() if isinstance(raw, Mapping) else ():
        yield SnapshotPack(str(name), version=_text(version), is_registered=True)


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def commit_of(value: Any) -> str | None:
    """The commit that a value is, in lower case; None when it is none."""
    text = plain(value) if isinstance(value, str) else ""
    return text if classify(text) is VersionKind.COMMIT else None


def _shown(value: Any) -> str:
    return mask(str(value))[:80] or "(without a name)"


def _python(raw: Mapping[str, Any]) -> JsonValue:
    packages: list[JsonValue] = [*sorted(one for one in _pips(raw.get("pips")) if _PIN.fullmatch(one))]
    version = raw.get("python")
    found: dict[str, JsonValue] = {"source": "snapshot"}
    if isinstance(version, str) and _VERSION.fullmatch(version):
        found["version"] = version
    if packages:
        found["packages"] = packages
    return found if len(found) > 1 else None


def _pips(raw: Any) -> Iterator[str]:
    return (str(one).strip() for one in raw) if isinstance(raw, Mapping) else iter(())


def _unpinned(raw: Any) -> Iterator[Finding]:
    odd = [one for one in _pips(raw) if not _PIN.fullmatch(one)]
    if odd:
        named = ", ".join(dict.fromkeys(_begins(one) for one in odd[:_MOST_NAMED]))
        more = f" and {len(odd) - _MOST_NAMED} more" if len(odd) > _MOST_NAMED else ""
        message = f"{len(odd)} entries of a snapshot's Python packages are no `name==version`, and left out"
        remedy = "install them on the hosts as they were installed there, or pin a release of each"
        yield warning("package_not_pinned", f"{message}: {named}{more}", remedy, field="pips")


def _begins(entry: str) -> str:
    found = _PACKAGE.match(entry)
    return f"{found[0]}…" if found is not None else "(an address or path)"


def _entries(models: Any) -> Iterator[CatalogueEntry]:
    for model in models if isinstance(models, list) else ():
        if not isinstance(model, Mapping):
            continue
        name = str(model.get("filename") or "")
        sha256, size = _lowered(model.get("sha256")), model.get("size")
        folder, _, path = name.replace("\\", "/").removeprefix(_MODELS).partition("/")
        if not isinstance(sha256, str) or type(size) is not int or size < 0 or not is_safe(folder, path):
            continue
        if _SHA256.match(sha256) and sha256 != hashlib.sha256(name.encode()).hexdigest():
            sources = tuple(dict.fromkeys(_sources(model.get("source"))))
            yield CatalogueEntry(folder=folder, path=path, sha256=sha256, size=size, sources=sources)


def _lowered(value: Any) -> Any:
    return value.lower() if isinstance(value, str) else value


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
