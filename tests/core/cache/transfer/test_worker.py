"""One thread that fetches, with a work of its own: what it gives back, and when it is beaten."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from comfyfarm.cache.transfer.answer import Answer, Meaning
from comfyfarm.cache.transfer.buffers import BufferPool
from comfyfarm.cache.transfer.chunks import CHUNK_BYTES
from comfyfarm.cache.transfer.landing import Landing, open_landing
from comfyfarm.cache.transfer.route import Hop, Route
from comfyfarm.cache.transfer.stretches import Stretch
from comfyfarm.cache.transfer.worker import Worker

if TYPE_CHECKING:
    from tests.core.cache.transfer.conftest import Act, Faulty, Road, Source

MIB = CHUNK_BYTES


class _Alone:
    """The work of one thread that is one too many."""

    etag: str | None = None
    is_etag_redirected: bool | None = None
    is_ready = has_ranges = True
    has_bytes = is_streamed = False
    address = "http://somewhere/m"

    def __init__(self, source: "Source", landing: Landing, road: "Road") -> None:
        self.size, self.landing, self.limits = landing.size, landing, road.limits
        self.route = Route(source, renewals=0)
        self.waiting = [Stretch(0, landing.size)]
        self.given_back: list[Stretch] = []
        self.told_s: list[float] = []
        self.check = road.flow.check
        self.wait = road.flow.wait

    def take(self) -> Stretch | None:
        return self.waiting.pop() if self.waiting else None

    def take_ahead(self) -> Stretch | None:
        return self.take()

    def advance(self, stretch: Stretch, at: int) -> bool:
        stretch.at = at
        return not stretch.is_lost and at < stretch.end

    def end(self, stretch: Stretch) -> None:
        """Nothing is kept of it."""

    def give_back(self, stretch: Stretch) -> None:
        self.given_back.append(stretch)

    def learn(self, answer: Answer, hop: Hop, stretch: Stretch, *, round_trip_s: float) -> None:
        self.is_streamed = answer.meaning is Meaning.WHOLE

    def complain(self, retry_after_s: float) -> bool:
        self.told_s.append(retry_after_s)
        return True

    def may_wait(self, seconds: float) -> bool:
        return True

    def count(self, taken_bytes: int) -> None:
        """Nobody is told."""


@pytest.fixture
def pool() -> BufferPool:
    return BufferPool(4)


@pytest.fixture
def landing(tmp_path: Path, matter: bytes, road: "Road", pool: BufferPool) -> Iterator[Landing]:
    landing = open_landing(tmp_path / "partial", len(matter), stop=road.flow.check, pool=pool)
    yield landing
    landing.close(keep=False)


@pytest.fixture
def work(source: type["Source"], faulty: "Faulty", landing: Landing, road: "Road") -> _Alone:
    return _Alone(source(faulty.url), landing, road)


def _run(work: _Alone) -> list[BaseException | None]:
    left: list[BaseException | None] = []
    Worker(work, lambda _, error: left.append(error)).run()
    return left


def test_a_part_is_given_back_without_its_half_full_chunk_and_with_its_tries(
    work: _Alone, faulty: "Faulty", act: type["Act"], pool: BufferPool
) -> None:
    busy = act(status=429, body=b"", headers={"Retry-After": "2"})
    faulty.act = lambda ask: act(sends=1000, ending="close") if ask.nth == 1 else busy

    assert _run(work) == [None]

    (stretch,) = work.given_back
    assert (stretch.at, stretch.chunk, stretch.tries, work.told_s) == (0, None, 2, [2.0])
    assert len(pool._free) == pool._made == 1


def test_nothing_is_read_to_be_thrown_away_where_nothing_is_here(
    work: _Alone, faulty: "Faulty", act: type["Act"], landing: Landing
) -> None:
    faulty.act = lambda ask: act(is_whole=True)
    work.has_ranges = False
    worker = Worker(work, lambda _, error: None)
    worker.run()

    assert landing.missing() == ()
    assert worker._waste is None


@pytest.mark.parametrize(
    ("is_raced", "waiting_since", "is_beaten"),
    [(True, 1.0, True), (False, 1.0, False), (True, None, False)],
)
def test_a_part_is_beaten_once_another_has_brought_what_it_waits_for(
    work: _Alone, landing: Landing, is_raced: bool, waiting_since: float | None, is_beaten: bool
) -> None:
    worker = Worker(work, lambda _, error: None)
    stretch = worker.stretch = Stretch(0, MIB)
    stretch.is_raced, worker.waiting_since = is_raced, waiting_since
    landing.put(landing.buffer(0, work.check))

    assert worker.is_beaten is is_beaten


def test_a_part_at_the_end_of_a_file_of_whole_chunks_is_not_beaten(
    tmp_path: Path, work: _Alone, road: "Road"
) -> None:
    work.landing = open_landing(tmp_path / "whole", 2 * MIB, stop=road.flow.check)
    worker = Worker(work, lambda _, error: None)
    stretch = worker.stretch = Stretch(2 * MIB, 2 * MIB)
    stretch.is_raced, worker.waiting_since = True, 1.0

    assert not worker.is_beaten
    work.landing.close(keep=False)
