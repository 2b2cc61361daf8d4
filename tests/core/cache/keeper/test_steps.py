"""A process killed, or a disk that fails, at every step of every change: the cache stays in order."""

import errno
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from comfyfarm.cache.blobs import BlobStore
from comfyfarm.cache.disk import Disk
from comfyfarm.cache.keeper.keeper import Bounds, Keeper
from comfyfarm.errors import TransferError, TryLater

LAST = 80
"""No change takes more steps; one that does is no longer tested to its end."""


@dataclass
class Cache:
    """Three blobs, the oldest linked in every way and replaced under one of its names; one is pinned."""

    root: Path
    models: Path
    old: Any
    pinned: Any
    used: Any
    new: Any

    def keeper(self, disk: Disk | None = None, quota: int | None = None) -> Keeper:
        store = BlobStore(self.root) if disk is None else BlobStore(self.root, disk)
        return Keeper(store, Bounds(quota, 0))

    def links(self) -> list[Path]:
        found = [Path(at, name) for at, _, names in os.walk(self.models) for name in names]
        return [*found, *(self.root / "views").rglob("*.pt")]

    def check(self) -> None:
        """Every blob is whole, every link leads to a whole file, pins are known, nothing is held."""
        state, known = self.keeper().look(is_locked_by_us=True)
        for model in (self.old, self.pinned, self.used):
            path = self.keeper().blobs.path(model.sha256)
            if model.sha256 in state.blobs:
                assert path.read_bytes() == model.data
                assert path.stat().st_mode & 0o777 == 0o444
        assert known.is_complete
        assert self.pinned.sha256 in state.blobs
        assert self.pinned.sha256 in state.pins
        assert state.in_use == {}
        assert list((self.root / ".leases").glob("*.lease")) == []
        whole = {self.old.data, self.pinned.data, self.used.data}
        assert {link.read_bytes() for link in self.links()} <= whole  # a dangling one would raise


@pytest.fixture
def cache(
    tmp_path_factory: pytest.TempPathFactory, blob: Callable[..., Any], fill: Callable[..., None]
) -> Callable[[], Cache]:
    """A new cache each time."""

    def make() -> Cache:
        folder = tmp_path_factory.mktemp("steps")
        made = Cache(folder / "cache", folder / "models", blob("o"), blob("p"), blob("u"), blob("n"))
        keeper = made.keeper()
        for used, model in enumerate((made.old, made.pinned, made.used)):
            fill(keeper.blobs, model)
            os.utime(keeper.blobs.path(model.sha256), (used, used))
        keeper.pin({made.pinned.sha256: "vae/p.pt"}, who="hand")
        keeper.link([made.old, made.old.called("name.pt")], made.models)
        keeper.link([made.old], made.models / "hard", hard=True)
        keeper.view("d1", [made.old, made.used])
        rest = made.root / ".partial" / ("f" * 64)
        rest.mkdir(parents=True)
        for name in ("data", "journal", "lock"):
            (rest / name).write_bytes(b"x")
        return made

    return make


def hold_new(cache: Cache, disk: Disk) -> None:
    with cache.keeper(disk, quota=3000).hold([cache.new, cache.pinned]):
        pass


def relink(cache: Cache, disk: Disk) -> None:
    cache.keeper(disk).link([cache.used.called("name.pt"), cache.pinned], cache.models)
    cache.keeper(disk).link([cache.used.called("o.pt")], cache.models / "hard", hard=True)


def pin_and_unpin(cache: Cache, disk: Disk) -> None:
    keeper = cache.keeper(disk)
    keeper.pin({cache.old.sha256: "", cache.new.sha256: "", cache.pinned.sha256: ""}, who="lock 1")
    keeper.unpin("lock 1", [cache.old.sha256])


CHANGES: dict[str, Callable[[Cache, Disk], object]] = {
    "evict": lambda cache, disk: cache.keeper(disk).evict([cache.old.sha256, cache.pinned.sha256]),
    "hold": hold_new,
    "link": relink,
    "view": lambda cache, disk: cache.keeper(disk).view("d2", [cache.old, cache.used]),
    "pin": pin_and_unpin,
    "quarantine": lambda cache, disk: cache.keeper(disk).quarantine(cache.used.sha256, reason="test"),
    "note": lambda cache, disk: cache.keeper(disk).note(fetched={cache.old.sha256: 7}, source="mirror"),
}


def check_it_goes_on(cache: Cache, change: str) -> None:
    """The same change by the next process comes to its end."""
    CHANGES[change](cache, Disk())
    here = cache.keeper().look()[0].blobs
    assert cache.pinned.sha256 in here
    assert change not in {"evict", "hold"} or cache.old.sha256 not in here
    if change == "link":
        assert (cache.models / "vae" / "name.pt").read_bytes() == cache.used.data
        assert (cache.models / "hard" / "vae" / "o.pt").read_bytes() == cache.used.data
    if change == "quarantine":
        assert cache.used.sha256 not in here
    if change == "pin":
        known = cache.keeper().index.read()
        assert known.pins.keys() == {cache.new.sha256, cache.pinned.sha256}
    cache.keeper().unpin(None)
    cache.keeper().evict_to(0)
    assert cache.keeper().look()[0].blobs == {}
    left = [link for link in cache.links() if not (change == "quarantine" and link.is_symlink())]
    assert left == []


def named_error(work: Callable[[], object]) -> str | None:
    """The words of an error of ours; any other error comes through."""
    try:
        work()
    except (TryLater, TransferError) as exc:
        return str(exc)
    return None


@pytest.mark.parametrize("change", CHANGES)
def test_a_kill_at_any_step_leaves_a_cache_in_order(
    cache: Callable[[], Cache], dies_at: Callable[..., bool], change: str
) -> None:
    for at in range(1, LAST):
        made = cache()
        if not dies_at(at, lambda disk, made=made: CHANGES[change](made, disk)):
            break
        if change != "quarantine":  # its symbolic links wait for the right bytes
            made.check()
        check_it_goes_on(made, change)
    else:
        pytest.fail("it takes more steps than are tested")
    assert at > 2


@pytest.mark.parametrize(("code", "stays"), [(errno.ENOSPC, True), (errno.EROFS, False)])
@pytest.mark.parametrize("change", CHANGES)
def test_an_error_at_any_step_is_named_and_loses_nothing(
    cache: Callable[[], Cache], failing: Callable[..., Any], change: str, code: int, stays: bool
) -> None:
    for at in range(1, LAST):
        made = cache()
        disk = failing(at, code, stays=stays)
        told = named_error(lambda disk=disk, made=made: CHANGES[change](made, disk))  # type: ignore[misc]
        assert told is None or os.strerror(code) in told
        if change != "quarantine":
            made.check()
        check_it_goes_on(made, change)
        if disk.steps < at:
            break
    else:
        pytest.fail("it takes more steps than are tested")
