"""Several real processes in one cache: no room is promised twice, nothing that is held leaves."""

import contextlib
import fcntl
import os
import random
import shutil
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from comfyfarm.cache.blobs import BlobStore
from comfyfarm.cache.keeper.admission import Cause, Stay
from comfyfarm.cache.keeper.keeper import Bounds, Keeper
from comfyfarm.errors import NoRoom

Make = Callable[..., Any]
Keep = Callable[..., Keeper]
ROUNDS = 25


@contextlib.contextmanager
def child(work: Callable[[Callable[[], None]], None]) -> Iterator[int]:
    """A process that says when it is ready, and then waits to be killed."""
    read, write = os.pipe()
    pid = os.fork()
    if not pid:

        def ready() -> None:
            os.write(write, b"x")
            signal.pause()

        try:
            work(ready)
        finally:
            os._exit(1)
    os.close(write)
    assert os.read(read, 1) == b"x"
    os.close(read)
    try:
        yield pid
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def test_room_is_promised_to_one_process_until_it_dies(keep: Keep, blob: Make) -> None:
    first, second = blob("a", size=600), blob("b", size=600)

    def hold(ready: Callable[[], None]) -> None:
        with keep(1000).hold([first], who="the first"):
            ready()

    with child(hold):
        with pytest.raises(NoRoom, match="promised to other processes: 600 bytes"):
            keep(1000).check([second])
        with pytest.raises(NoRoom), keep(1000).hold([second]):
            pytest.fail("held")
        with keep(1000).hold([first, blob("c", size=400)]) as shared:
            assert len(shared.missing) == 2
    with keep(1000).hold([second]) as held:
        assert held.missing == (second.sha256,)


def test_a_transfer_of_another_process_takes_room_until_it_dies(
    keep: Keep, blobs: BlobStore, blob: Make
) -> None:
    def land(ready: Callable[[], None]) -> None:
        folder = blobs.root / ".partial" / ("f" * 64)
        folder.mkdir(parents=True)
        (folder / "data").write_bytes(b"x" * 600)
        with (folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            ready()

    with child(land):
        assert keep(1000).check([blob("a", size=400)]).fetch_bytes == 400
        with pytest.raises(NoRoom), keep(1000).hold([blob("a", size=401)]):
            pytest.fail("held")
    with keep(1000).hold([blob("a", size=1000)]):
        assert not (blobs.root / ".partial" / ("f" * 64)).exists()


def test_what_a_process_holds_stays_until_it_dies(put: Make, keep: Keep) -> None:
    model = put("a")

    def hold(ready: Callable[[], None]) -> None:
        with keep().hold([model], who="job 7"):
            ready()

    with child(hold):
        assert keep().evict([model.sha256]).stayed == {model.sha256: Stay(Cause.IN_USE, "in use by job 7")}
    assert keep().look()[0].in_use == {}
    assert keep().evict([model.sha256]).evicted == (model.sha256,)


def test_a_child_that_was_forked_meanwhile_holds_nothing(put: Make, keep: Keep) -> None:
    model = put("a")

    def idle(ready: Callable[[], None]) -> None:
        ready()

    with contextlib.ExitStack() as stack:
        with keep().hold([model]):
            stack.enter_context(child(idle))
        assert keep().look()[0].in_use == {}
        assert keep().evict([model.sha256]).evicted == (model.sha256,)


def test_holders_and_evicters_at_once_break_no_promise(
    blobs: BlobStore, blob: Make, fill: Callable[[BlobStore, Any], None]
) -> None:
    models = [blob(word) for word in "abcdef"]
    quota = 4000

    def hold(seed: int) -> None:
        keeper, dice = Keeper(blobs, Bounds(quota, 0)), random.Random(seed)
        for _ in range(ROUNDS):
            mine = dice.sample(models, 2)
            with contextlib.suppress(NoRoom), keeper.hold(mine) as held:
                for model in mine:
                    if model.sha256 in held.missing:
                        fill(blobs, model)
                for model in mine:
                    assert blobs.path(model.sha256).read_bytes() == model.data
                state = keeper.look()[0]
                assert sum(one.size for one in state.blobs.values()) <= quota

    def evict(seed: int) -> None:
        keeper, dice = Keeper(blobs, Bounds(quota, 0)), random.Random(seed)
        for _ in range(ROUNDS):
            keeper.evict([model.sha256 for model in dice.sample(models, 3)])
            keeper.evict_to(1000)

    works = [lambda: hold(1), lambda: hold(2), lambda: hold(3), lambda: evict(4)]
    codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in [_start(work) for work in works]]

    assert codes == [0] * len(works)
    state, known = Keeper(blobs, Bounds(quota, 0)).look(is_locked_by_us=True)
    assert (state.in_use, state.promised, known.is_complete) == ({}, {}, True)


def _start(work: Callable[[], None]) -> int:
    pid = os.fork()
    if not pid:
        code = 1
        try:
            work()
            code = 0
        except BaseException:  # noqa: BLE001 - told, and counted by its exit status
            traceback.print_exc(file=sys.__stderr__)  # what the assertion below says nothing of
        finally:
            os._exit(code)
    return pid


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 2 MiB."""
    disk = tmp_path / "small"
    disk.mkdir()
    if os.geteuid() or not shutil.which("mount"):
        pytest.skip("only root may mount")
    words = ["mount", "-t", "tmpfs", "-o", "size=2m", "none", str(disk)]
    if subprocess.run(words, check=False, capture_output=True).returncode:
        pytest.skip("may not mount here")
    try:
        yield disk
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_a_disk_that_is_full_gives_room_by_evicting_and_goes_on_reading(
    small_disk: Path, blob: Make, fill: Callable[[BlobStore, Any], None]
) -> None:
    store = BlobStore(small_disk / "cache")
    keeper = Keeper(store, Bounds(None, 100_000))
    old, newer, new = blob("old", size=700_000), blob("newer", size=700_000), blob("new", size=800_000)
    for used, model in enumerate((old, newer)):
        fill(store, model)
        os.utime(store.path(model.sha256), (used, used))

    with keeper.hold([newer, new]) as held:
        assert held.evicted == (old.sha256,)
        fill(store, new)
    junk = small_disk / "junk"
    with contextlib.suppress(OSError), junk.open("wb", buffering=0) as file:
        while file.write(b"x" * 4096):
            pass
    with keeper.hold([newer, new]) as held:
        assert held.missing == ()
    with pytest.raises(NoRoom), keeper.hold([blob("huge", size=3_000_000)]):
        pytest.fail("held")
    assert keeper.evict([new.sha256]).freed_bytes == 800_000  # a full disk is no hindrance
    with keeper.hold([newer, old]) as held:
        assert held.missing == (old.sha256,)


@pytest.fixture
def read_only(put: Make, keep: Keep, blobs: BlobStore, tmp_path: Path) -> Iterator[tuple[Path, Any]]:
    """The cache as it looks through a mount that takes nothing, and a model in it."""
    if os.geteuid() or not shutil.which("mount"):
        pytest.skip("only root may mount")
    model = put("a")
    keep().pin({model.sha256: "vae/a.pt"}, who="hand")
    view = tmp_path / "view"
    view.mkdir()
    for words in (["--bind", str(blobs.root), str(view)], ["-o", "remount,bind,ro", str(view)]):
        if subprocess.run(["mount", *words], check=False, capture_output=True).returncode:
            subprocess.run(["umount", str(view)], check=False, capture_output=True)
            pytest.skip("may not mount here")
    try:
        yield view, model
    finally:
        subprocess.run(["umount", str(view)], check=True)


def test_a_read_only_cache_is_read(read_only: tuple[Path, Any], keep: Keep, tmp_path: Path) -> None:
    root, model = read_only
    keeper = Keeper(BlobStore(root), Bounds(None, 0))

    with keeper.hold([model]) as held:
        assert held.missing == ()
        # Through the other mount it could leave: it is pinned, and then held by its lock.
        keep().unpin("hand")
        assert "no room for a lease" in keep().evict([model.sha256]).stayed[model.sha256].text
    keeper.note(hits=[model.sha256])
    (link,) = keeper.link([model], tmp_path / "models")
    assert link.read_bytes() == model.data
    assert keeper.look()[1].counters == {}
