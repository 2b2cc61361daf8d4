"""`comfyfarm hydrate` as processes: killed again and again, and two of them at once."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from comfyfarm.cache.blobs import BlobStore
from comfyfarm.cache.transfer.chunks import ChunkMap
from comfyfarm.cache.transfer.journal import parse
from comfyfarm.clock import SystemClock, pause

if TYPE_CHECKING:
    from tests.core.cache.road.conftest import Act, Ask, Depot, ModelFile

MIB = 1 << 20
PATIENCE_S = 40.0
SYNCING = """
from comfyfarm.cache.transfer import syncer
syncer.SYNC_S = 0.1  # so that little need be fetched before some of it is journalled
from comfyfarm.cli import main
main()
"""
Start = Callable[..., subprocess.Popen[bytes]]

pytestmark = pytest.mark.usefixtures("watcher")


@pytest.fixture
def start(blobs: BlobStore, tmp_path: Path) -> Iterator[Start]:
    """Start `comfyfarm hydrate` of a lock."""
    with ExitStack() as stack:

        def run(lock: Path, *, syncs_often: bool = False) -> subprocess.Popen[bytes]:
            installed = [str(Path(sys.executable).with_name("comfyfarm"))]
            words = [sys.executable, "-c", SYNCING] if syncs_often else installed
            environ = os.environ | {
                "COMFYFARM_CACHE_DIR": str(blobs.root),
                "COMFYFARM_STATE_DIR": str(tmp_path / "state"),
                "COMFYFARM_CACHE_FREE_GB": "0",
            }
            process = subprocess.Popen(
                [*words, "hydrate", "--lock", str(lock)], env=environ, stderr=subprocess.PIPE
            )
            stack.callback(end, process)
            return process

        yield run


def end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
    if process.stderr is not None:
        process.stderr.close()


def until(what: Callable[[], bool], *processes: subprocess.Popen[bytes]) -> None:
    """Wait for something that one of these processes is about to do."""
    clock = SystemClock()
    ends = clock.monotonic() + PATIENCE_S
    while not what():
        for process in processes:
            assert process.poll() is None, process.communicate()[1].decode()
        assert clock.monotonic() < ends
        pause(0.02)


def journalled(blobs: BlobStore, file: "ModelFile") -> ChunkMap:
    text = b""
    with contextlib.suppress(FileNotFoundError):
        text = (blobs.partial(file.sha256) / "journal").read_bytes()
    return parse(text, file.size).here


def sources_of(depot: "Depot", file: "ModelFile") -> str:
    return f"{depot.url}/{file.sha256}"


def test_a_hydration_killed_three_times_asks_for_nothing_that_was_journalled(
    make_depot: Callable[..., "Depot"],
    make_file: Callable[..., "ModelFile"],
    act: type["Act"],
    lock_of: Callable[..., Path],
    start: Start,
    blobs: BlobStore,
) -> None:
    file = make_file(3, 12 * MIB + 5)
    depot = make_depot(file)
    lock = lock_of(file.at(sources_of(depot, file)))
    given = [0]

    def three_of_each_life(ask: "Ask") -> "Act":
        with depot.lock:
            given[0] -= 1
            return act() if given[0] >= 0 else act(sends=MIB // 3, ending="hold")

    depot.act = three_of_each_life
    for life in (1, 2, 3):
        before, asked = journalled(blobs, file), len(depot.asks)
        given[0] = 3
        process = start(lock, syncs_often=True)
        until(lambda life=life: journalled(blobs, file).here_bytes() >= life * 3 * MIB, process)  # type: ignore[misc]
        end(process)
        assert not blobs.has(file.sha256)
        check_asked_anew(depot.asks[asked:], before)
    depot.act = lambda ask: act()
    before, asked = journalled(blobs, file), len(depot.asks)

    process = start(lock)

    errors = process.communicate(timeout=PATIENCE_S)[1]
    assert process.returncode == 0, errors.decode()
    check_asked_anew(depot.asks[asked:], before)
    assert sum(ask.end - ask.start for ask in depot.asks[asked:]) == file.size - before.here_bytes()
    assert blobs.path(file.sha256).read_bytes() == file.data
    assert not blobs.partial(file.sha256).exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_one_that_is_told_to_end_keeps_what_has_come(
    make_depot: Callable[..., "Depot"],
    make_file: Callable[..., "ModelFile"],
    act: type["Act"],
    lock_of: Callable[..., Path],
    start: Start,
    blobs: BlobStore,
    number: signal.Signals,
) -> None:
    file = make_file(11, 12 * MIB + 5)
    depot = make_depot(file)
    given = [3]

    def three(ask: "Ask") -> "Act":
        with depot.lock:
            given[0] -= 1
            return act() if given[0] >= 0 else act(sends=MIB // 3, ending="hold")

    depot.act = three
    process = start(lock_of(file.at(sources_of(depot, file))))
    until(lambda: has_written(blobs, file), process)
    assert journalled(blobs, file).here_bytes() < MIB

    process.send_signal(number)

    errors = process.communicate(timeout=PATIENCE_S)[1].decode()
    assert process.returncode == (143 if number is signal.SIGTERM else 1), errors
    assert "Traceback" not in errors
    assert ("the same call goes on" in errors) == (number is signal.SIGTERM)
    assert journalled(blobs, file).here_bytes() >= MIB


def has_written(blobs: BlobStore, file: "ModelFile") -> bool:
    """Whether a first MiB of the file is on the disk, be it journalled or not."""
    data = b""
    with contextlib.suppress(FileNotFoundError):
        data = (blobs.partial(file.sha256) / "data").read_bytes()
    return any(data[at : at + MIB] == file.data[at : at + MIB] for at in range(0, len(data), MIB))


def check_asked_anew(asks: list["Ask"], before: ChunkMap) -> None:
    assert asks
    assert [ask for ask in asks for at in range(ask.start, ask.end, MIB) if before.has(at)] == []


def test_two_hydrations_of_one_lock_fetch_each_byte_once(
    make_depot: Callable[..., "Depot"],
    make_file: Callable[..., "ModelFile"],
    act: type["Act"],
    lock_of: Callable[..., Path],
    start: Start,
    blobs: BlobStore,
) -> None:
    files = [make_file(seed, 2 * MIB) for seed in range(4, 7)]
    depot = make_depot(*files)
    depot.act = lambda ask: act(rate=2e6)
    lock = lock_of(*(file.at(sources_of(depot, file)) for file in files))

    processes = [start(lock), start(lock)]

    told = [process.communicate(timeout=PATIENCE_S)[1].decode() for process in processes]
    assert [process.returncode for process in processes] == [0, 0], told
    assert dict(depot.sent) == {file.sha256: file.size for file in files}
    assert [blobs.path(file.sha256).read_bytes() for file in files] == [file.data for file in files]


def test_who_waits_for_a_hydration_that_is_killed_goes_on_where_it_was(
    make_depot: Callable[..., "Depot"],
    make_file: Callable[..., "ModelFile"],
    act: type["Act"],
    lock_of: Callable[..., Path],
    start: Start,
    blobs: BlobStore,
) -> None:
    file = make_file(7, 5 * MIB)
    depot = make_depot(file)
    lock = lock_of(file.at(sources_of(depot, file)))
    depot.act = lambda ask: act() if ask.nth <= 2 else act(sends=MIB // 3, ending="hold")
    first = start(lock, syncs_often=True)
    until(lambda: journalled(blobs, file).here_bytes() >= 2 * MIB, first)
    second = start(lock)
    until(lambda: len(list((blobs.root / ".leases").glob("*.lease"))) == 2, second)
    before, asked = journalled(blobs, file), len(depot.asks)
    depot.act = lambda ask: act()

    first.kill()

    errors = second.communicate(timeout=PATIENCE_S)[1]
    assert second.returncode == 0, errors.decode()
    check_asked_anew(depot.asks[asked:], before)
    assert blobs.path(file.sha256).read_bytes() == file.data
