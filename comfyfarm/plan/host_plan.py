"""What a lock costs a host before anything is fetched or rented: bytes, disk, node packs, VRAM.

A plan that cannot be has findings of severity error: the caller refuses before the first byte comes.
"""

from collections.abc import Iterator, Mapping

from pydantic import BaseModel, ConfigDict, NonNegativeInt

from comfyfarm.ids import Sha256
from comfyfarm.lock.lockfile import Lock, LockedModel, LockedPack
from comfyfarm.lock.versions import same_version
from comfyfarm.plan.vram import VramEstimate, estimate_vram
from comfyfarm.workflow.findings import Finding, error, has_errors, info, warning
from comfyfarm.workflow.packs.urls import repo_key, repo_url

_DISK_RESERVE_BYTES = 1 << 30  # below this, ComfyUI's own outputs may not find room
_SHOWN = 5


class HostFacts(BaseModel):
    """What a host has; None is not known, and is not held against it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = "this host"
    cached: frozenset[Sha256] = frozenset()
    """Contents that are in its cache, whole."""
    cache_bytes: NonNegativeInt = 0
    """Of everything in its cache."""
    stuck_bytes: NonNegativeInt = 0
    """Of these, that may not leave: pinned or in use, and none of the lock's."""
    quota_bytes: NonNegativeInt | None = None
    """Of its cache."""
    keep_free_bytes: NonNegativeInt = 0
    """What is to stay free of the disk."""
    disk_free_bytes: NonNegativeInt | None = None
    """Where its cache lies."""
    vram_bytes: NonNegativeInt | None = None
    """Of its largest GPU, all of it: what is in it now can be unloaded."""
    packs: Mapping[str, str | None] | None = None
    """Commit by repository of the node packs that it has; None where the commit is not known."""
    comfyui: str | None = None
    foreign: tuple[str, ...] = ()
    """`folder/path` of files that are not ours and lie where the lock's models would be linked."""
    in_place: frozenset[str] = frozenset()
    """`folder/path` of such files that have the locked content."""


class PackChange(BaseModel):
    """A node pack to install, or to bring to another commit."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    url: str
    commit: str
    installed: str | None = None
    """The commit that the host has now; None where it has none, or does not say which."""


class HostPlan(BaseModel):
    """What has to happen on a host for a lock, and why it cannot, if it cannot."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    host: str
    fetch: tuple[Sha256, ...]
    """Contents to fetch, each once, largest first."""
    fetch_bytes: NonNegativeInt
    reuse_bytes: NonNegativeInt
    """Of the lock's files that are here already, in the cache or in their place."""
    evict_bytes: NonNegativeInt
    """That have to leave the cache to keep within its quota, and its disk from filling up."""
    install: tuple[PackChange, ...]
    change: tuple[PackChange, ...]
    vram: VramEstimate
    findings: tuple[Finding, ...]

    @property
    def fits(self) -> bool:
        """Whether nothing speaks against it."""
        return not has_errors(self.findings)


def plan_host(lock: Lock, host: HostFacts) -> HostPlan:
    """What a host has to fetch and install for a lock, and whether that fits.

    Refused, as findings of severity error: `disk_full`, `quota_short`, `vram_short`, `foreign_file`.
    A file counts once, however many names it has.
    """
    every = {model.sha256: model for model in lock.models}
    wanted = {model.sha256: model for model in lock.models if model.title not in host.in_place}
    absent = sorted(
        (model for model in wanted.values() if model.sha256 not in host.cached),
        key=lambda model: (-model.size, model.sha256),
    )
    whole = sum(model.size for model in wanted.values())
    fetch_bytes = sum(model.size for model in absent)
    leaving = max(0, host.cache_bytes - (whole - fetch_bytes) - host.stuck_bytes)
    evict = _evict_bytes(host, fetch_bytes, leaving)
    install, change = _packs(lock, host)
    vram = estimate_vram(lock.models)
    findings = (
        *_disk(host, fetch_bytes, min(evict, leaving)),
        *_quota(host, whole),
        *_sources(absent),
        *_foreign(host),
        *_in_place(host),
        *_vram(host, vram),
        *_differences(lock, host),
    )
    return HostPlan(
        host=host.name,
        fetch=tuple(model.sha256 for model in absent),
        fetch_bytes=fetch_bytes,
        reuse_bytes=sum(model.size for model in every.values()) - fetch_bytes,
        evict_bytes=evict,
        install=install,
        change=change,
        vram=vram,
        findings=findings,
    )


def _evict_bytes(host: HostFacts, fetch_bytes: int, leaving_bytes: int) -> int:
    """For the quota, whether that much can leave or not; for the disk, as much as can."""
    if not fetch_bytes:
        return 0
    over = 0 if host.quota_bytes is None else max(0, host.cache_bytes + fetch_bytes - host.quota_bytes)
    if host.disk_free_bytes is None:
        return over
    short = fetch_bytes + host.keep_free_bytes - host.disk_free_bytes
    return max(over, min(short, leaving_bytes))


def _disk(host: HostFacts, fetch_bytes: int, evict_bytes: int) -> Iterator[Finding]:
    if host.disk_free_bytes is None or not fetch_bytes:
        return
    left = host.disk_free_bytes + evict_bytes - fetch_bytes
    if left < host.keep_free_bytes:
        can_leave = f"; {bytes_text(evict_bytes)} can leave the cache" if evict_bytes else ""
        floor = host.keep_free_bytes
        to_stay = f", of which {bytes_text(floor)} are to stay so" if floor else ""
        yield error(
            "disk_full",
            f"{bytes_text(fetch_bytes)} have to be fetched, and the disk of {host.name} has "
            f"{bytes_text(host.disk_free_bytes)} free{to_stay}{can_leave}",
            "make room there, or give --cache on a larger disk",
        )
    elif left < _DISK_RESERVE_BYTES:
        message = f"after fetching {bytes_text(fetch_bytes)}, {host.name} has {bytes_text(left)} of disk left"
        yield warning("disk_tight", message, "leave room for what is rendered")


def _quota(host: HostFacts, whole_bytes: int) -> Iterator[Finding]:
    if host.quota_bytes is not None and whole_bytes > host.quota_bytes:
        quota = bytes_text(host.quota_bytes)
        message = f"the lock's files are {bytes_text(whole_bytes)}, and the cache may hold {quota}"
        yield error("quota_short", message, "raise --quota-gb, or lock fewer models")
    elif host.quota_bytes is not None and whole_bytes + host.stuck_bytes > host.quota_bytes:
        yield error(
            "quota_short",
            f"the lock's files are {bytes_text(whole_bytes)}, and of the {bytes_text(host.quota_bytes)} that "
            f"the cache may hold, {bytes_text(host.stuck_bytes)} are pinned or in use by others",
            "unpin files (comfyfarm cache unpin), wait until they are done, or raise --quota-gb",
        )


def _sources(absent: list[LockedModel]) -> Iterator[Finding]:
    for model in absent:
        if not model.sources:
            message = f"{model.title} is not here, and the lock has no source of it"
            yield warning("no_source", message, "fetch with --mirror, or make the lock again with a source")


def _foreign(host: HostFacts) -> Iterator[Finding]:
    if host.foreign:
        more = f" and {len(host.foreign) - _SHOWN} more" if len(host.foreign) > _SHOWN else ""
        message = (
            f"files that are not ours lie where models should go: {', '.join(host.foreign[:_SHOWN])}{more}"
        )
        yield error("foreign_file", message, "move them away: they are never overwritten")


def _in_place(host: HostFacts) -> Iterator[Finding]:
    for name in sorted(host.in_place):
        message = f"{name} lies in its place already, with the locked content"
        remedy = "nothing; where all models do, call render without --models-dir, which links no files"
        yield info("in_place", message, remedy)


def _vram(host: HostFacts, vram: VramEstimate) -> Iterator[Finding]:
    if host.vram_bytes is not None and vram.bytes > host.vram_bytes:
        yield error(
            "vram_short",
            f"an estimated {bytes_text(vram.bytes)} of VRAM are needed at once "
            f"({', '.join(vram.models)}), and {host.name} has {bytes_text(host.vram_bytes)}",
            "use a larger GPU or smaller weights; with --lowvram servers may manage, slower: then pass "
            "--vram-gb 0, which checks none",
        )
    for name in vram.unknown:
        message = f"{name} says nothing of its weights; its size is taken"
        yield info("vram_by_size", message, "lock it as .safetensors for a better estimate")


def _packs(lock: Lock, host: HostFacts) -> tuple[tuple[PackChange, ...], tuple[PackChange, ...]]:
    if host.packs is None:
        return tuple(_change(pack) for pack in lock.packs), ()
    here = {_repo(url): commit for url, commit in host.packs.items()}
    install = tuple(_change(pack) for pack in lock.packs if _repo(pack.url) not in here)
    change = tuple(
        _change(pack, here[_repo(pack.url)])
        for pack in lock.packs
        if here.get(_repo(pack.url), pack.commit) != pack.commit
    )
    return install, change


def _repo(url: str) -> str:
    return repo_key(repo_url(url) or url)


def _change(pack: LockedPack, installed: str | None = None) -> PackChange:
    return PackChange(name=pack.name, url=pack.url, commit=pack.commit, installed=installed)


def _differences(lock: Lock, host: HostFacts) -> Iterator[Finding]:
    for item in lock.missing:
        message = f"the lock does not pin {item.kind} {item.name}: {item.reason}"
        yield warning("not_pinned", message, "see that the host has it, and what it needs")
    if None not in {lock.comfyui, host.comfyui} and not same_version(str(lock.comfyui), str(host.comfyui)):
        message = f"the lock was made for ComfyUI {lock.comfyui}, and {host.name} has {host.comfyui}"
        yield warning("comfyui_differs", message, "install that version, or make the lock again")


def bytes_text(size_bytes: int) -> str:
    """A number of bytes for people."""
    if size_bytes < 2**10:
        return "1 byte" if size_bytes == 1 else f"{size_bytes} bytes"
    for exponent, unit in ((10, "KiB"), (20, "MiB")):
        if size_bytes < 2 ** (exponent + 10):
            return f"{size_bytes / 2**exponent:.1f} {unit}"
    return f"{size_bytes / 2**30:.2f} GiB"
