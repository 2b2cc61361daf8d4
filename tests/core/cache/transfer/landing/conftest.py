"""Bytes for a landing, and threads that bring them."""

import random
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from comfyfarm.cache.transfer.chunks import CHUNK_BYTES
from comfyfarm.cache.transfer.journal import parse
from comfyfarm.cache.transfer.landing import Landing

MIB = CHUNK_BYTES


class Land:
    """What tests do with a landing."""

    class GaveUp(Exception):
        """Raised by `give_up`."""

    @staticmethod
    def go_on() -> None:
        """A transfer that is not to end."""

    @staticmethod
    def give_up() -> None:
        """A transfer that is to end now."""
        raise Land.GaveUp

    @staticmethod
    def noise(size: int) -> bytes:
        """So many bytes, no two MiB of them the same."""
        block = random.Random(1).randbytes(MIB)
        whole = b"".join(n.to_bytes(2, "big") + block[2:] for n in range(-(-size // MIB)))
        return whole[:size]

    @staticmethod
    def bring(landing: Landing, data: bytes, at: int) -> bool:
        """Bring one chunk."""
        chunk = landing.buffer(at, Land.go_on)
        chunk.view[:] = data[at : at + len(chunk.view)]
        return landing.put(chunk)

    @staticmethod
    def fill(landing: Landing, data: bytes, *, threads: int = 4) -> int:
        """Bring what is missing, in any order; returns how many bytes that were."""
        wanted = [at for each in landing.missing() for at in each[::MIB]]
        random.Random(2).shuffle(wanted)
        total = sum(min(MIB, len(data) - at) for at in wanted)
        turn = threading.Lock()

        def work() -> None:
            while True:
                with turn:
                    if not wanted:
                        return
                    at = wanted.pop()
                Land.bring(landing, data, at)

        workers = [threading.Thread(target=work) for _ in range(threads)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        return total

    @staticmethod
    def journalled(folder: Path, size: int) -> tuple[range, ...]:
        """What the journal says is here."""
        return parse((folder / "journal").read_bytes(), size).here.ranges(here=True)


@pytest.fixture
def land() -> type[Land]:
    """What tests do with a landing."""
    return Land


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where it lands."""
    return tmp_path / ".partial" / ("ab" * 32)


@pytest.fixture
def no_thread(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """From now on no thread of this name can be started."""
    start, names = threading.Thread.start, [""]

    def refuse(thread: threading.Thread) -> None:
        if thread.name == names[0]:
            raise RuntimeError("can't start new thread")
        start(thread)

    # Patched: a process that may have no more threads could not run the test.
    monkeypatch.setattr(threading.Thread, "start", refuse)
    return lambda name: names.__setitem__(0, name)
