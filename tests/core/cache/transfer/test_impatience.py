"""A source that is silent, trickles, or says "later" is given up soon, for the next one to be asked."""

import itertools
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from comfyfarm.cache.transfer.source import SourceFailed

if TYPE_CHECKING:
    from tests.core.cache.transfer.conftest import Act, Faulty, Road

_SIZE = 200_000
_HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % _SIZE
_CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
_PAUSE_S = 0.02
Play = Callable[[Callable[[bytes], None], threading.Event], None]
Serve = Callable[[Play], "Stage"]


class Stage:
    """A server that plays the same to every request, until the client or the test has had enough."""

    def __init__(self, play: Play) -> None:
        self.asks = 0
        self._play = play
        self._over = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}/m"

    def close(self) -> None:
        """End all of it."""
        self._over.set()
        self._listener.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()
        self._listener.close()

    def _accept(self) -> None:
        while not self._over.is_set():
            with suppress(OSError):
                line, _ = self._listener.accept()
                thread = threading.Thread(target=self._serve, args=(line,))
                self._threads.append(thread)
                thread.start()

    def _serve(self, line: socket.socket) -> None:
        line.settimeout(5)
        with line, suppress(OSError):
            if line.recv(4096):
                self.asks += 1
                self._play(line.sendall, self._over)


@pytest.fixture
def serve() -> Iterator[Serve]:
    stages: list[Stage] = []

    def start(play: Play) -> Stage:
        stages.append(Stage(play))
        return stages[-1]

    yield start
    for stage in stages:
        stage.close()


@pytest.fixture
def hurried(road: "Road") -> "Road":
    """Gives up within two seconds what it would otherwise give up within minutes."""
    road.limits = replace(
        road.limits,
        stall_s=0.4,
        head_s=0.5,
        first_byte_s=1.5,
        least_rate=1e5,
        least_rate_window_s=0.6,
    )
    return road


def _drip(send: Callable[[bytes], None], over: threading.Event, pieces: Iterator[bytes]) -> None:
    for piece in pieces:
        if over.wait(_PAUSE_S):
            return
        send(piece)


def _bytes(data: bytes) -> Iterator[bytes]:
    return (data[at : at + 1] for at in range(len(data)))


def _given_up(road: "Road", url: str, size: int = _SIZE, *, within_s: float = 6.0) -> str:
    began = time.monotonic()
    with pytest.raises(SourceFailed) as caught:
        road.bring(url, size)
    assert time.monotonic() - began < within_s
    return caught.value.reason


@pytest.mark.parametrize("begin", [b"", b"HTTP/1.1 20", _HEAD])
def test_a_source_that_gives_no_byte_of_the_file_is_asked_twice(
    serve: Serve, hurried: "Road", begin: bytes
) -> None:
    def play(send: Callable[[bytes], None], over: threading.Event) -> None:
        send(begin)
        over.wait()

    stage = serve(play)

    assert _given_up(hurried, stage.url) == "silent past the deadline"
    assert stage.asks == 2


def test_a_head_that_comes_byte_by_byte_has_a_deadline_for_all_of_it(serve: Serve, hurried: "Road") -> None:
    stage = serve(lambda send, over: _drip(send, over, _bytes(b"HTTP/1.1 200 OK\r\nX-Long: " + b"a" * 9999)))

    assert _given_up(hurried, stage.url) == "silent past the deadline"
    assert stage.asks == 2


@pytest.mark.parametrize("status", [b"100 Continue", b"103 Early Hints"])
@pytest.mark.parametrize("at_once", [1, 1000])
def test_interim_answers_without_an_end_are_not_read_for_ever(
    serve: Serve, hurried: "Road", status: bytes, at_once: int
) -> None:
    interim = b"HTTP/1.1 " + status + b"\r\n\r\n"
    stage = serve(lambda send, over: _drip(send, over, itertools.repeat(interim * at_once)))

    assert _given_up(hurried, stage.url) in {"silent past the deadline", "answers something that is not HTTP"}


def test_interim_answers_are_read_over(serve: Serve, road: "Road", matter: bytes) -> None:
    hints = b"HTTP/1.1 103 Early Hints\r\nLink: </style.css>; rel=preload\r\n\r\n"
    interim = b"HTTP/1.1 100 Continue\r\n\r\n" + hints + b"HTTP/1.1 199 Whatever\r\n\r\n" + hints
    data = matter[:_SIZE]
    stage = serve(lambda send, over: send(interim + _HEAD + data))

    assert road.bring(stage.url, _SIZE) == data
    assert stage.asks == 1


def test_interim_answers_before_a_body_in_chunks_are_read_over(
    serve: Serve, road: "Road", matter: bytes
) -> None:
    data = matter[:_SIZE]
    body = b"%x\r\n%b\r\n0\r\n\r\n" % (_SIZE, data)
    stage = serve(lambda send, over: send(b"HTTP/1.1 103 Early Hints\r\n\r\n" + _CHUNKED + body))

    assert road.bring(stage.url, _SIZE) == data


def test_a_switch_to_another_protocol_is_no_interim_answer(serve: Serve, road: "Road") -> None:
    stage = serve(lambda send, over: send(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n"))

    assert _given_up(road, stage.url) == "answered 101"


def test_a_body_that_trickles_is_given_up(serve: Serve, hurried: "Road") -> None:
    stage = serve(lambda send, over: _drip(send, over, itertools.chain([_HEAD], itertools.repeat(b"a"))))

    assert "brings next to nothing (" in _given_up(hurried, stage.url)


@pytest.mark.parametrize(("begin", "piece"), [(b"", b"1;" + b"e" * 500 + b"\r\na\r\n"), (b"1", b";")])
def test_chunks_that_are_all_extension_are_given_up(
    serve: Serve, hurried: "Road", begin: bytes, piece: bytes
) -> None:
    pieces = itertools.chain([_CHUNKED + begin], itertools.repeat(piece))
    stage = serve(lambda send, over: _drip(send, over, pieces))

    assert "gave nothing in" in _given_up(hurried, stage.url)


def test_answers_of_a_single_byte_each_are_given_up(
    faulty: "Faulty", hurried: "Road", matter: bytes, act: type["Act"]
) -> None:
    faulty.act = lambda ask: act(end=ask.start + 1)

    assert "next to nothing" in _given_up(hurried, faulty.url, len(matter))


def test_bodies_that_break_after_next_to_nothing_are_given_up(
    faulty: "Faulty", road: "Road", matter: bytes, act: type["Act"]
) -> None:
    faulty.act = lambda ask: act(sends=1000, ending="close")

    assert _given_up(road, faulty.url, len(matter)) == "the connection ended before the file"
    assert len(faulty.asks) <= 4 * road.limits.tries


def test_a_stream_that_always_breaks_at_the_same_byte_is_given_up(
    faulty: "Faulty", road: "Road", matter: bytes, act: type["Act"]
) -> None:
    faulty.act = lambda ask: act(is_whole=True, sends=3_300_000, ending="close")

    assert _given_up(road, faulty.url, len(matter)) == "the connection ended before the file"
    assert len(faulty.asks) <= road.limits.tries + 1


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_source_that_says_later_again_and_again_is_given_up(
    faulty: "Faulty", road: "Road", matter: bytes, act: type["Act"], status: int
) -> None:
    road.limits = replace(road.limits, patience_s=1.5)
    faulty.act = lambda ask: act(status=status, body=b"", headers={"Retry-After": "1"})

    assert _given_up(road, faulty.url, len(matter)) == f"answered {status}, and asks to wait again and again"
    assert len(faulty.asks) == 2


def test_a_source_that_is_slow_but_not_too_slow_is_waited_for(
    faulty: "Faulty", hurried: "Road", matter: bytes, act: type["Act"]
) -> None:
    faulty.data = matter[:400_000]
    faulty.act = lambda ask: act(rate=2.5e5)
    began = time.monotonic()

    assert hurried.bring(faulty.url, 400_000) == faulty.data
    assert time.monotonic() - began > 2 * hurried.limits.least_rate_window_s
