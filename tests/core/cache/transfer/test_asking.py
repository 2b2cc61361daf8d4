"""One thread's way to ask: what is next is asked for while the present body still comes."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from comfyfarm.cache.transfer.answer import Asked
from comfyfarm.cache.transfer.asking import Asker
from comfyfarm.cache.transfer.route import Route

if TYPE_CHECKING:
    from tests.core.cache.transfer.conftest import Road, Source

_HALF = 40_000
_SIZE = 4 * _HALF
_FIRST, _SECOND = Asked(0, 2 * _HALF, _SIZE), Asked(2 * _HALF, _SIZE, _SIZE)
Script = Callable[[socket.socket], None]


def _request(line: socket.socket) -> bytes:
    text = b""
    while not text.endswith(b"\r\n\r\n") and (more := line.recv(4096)):
        text += more
    return text


def _head(asked: Asked) -> bytes:
    length, said = asked.end - asked.start, f"bytes {asked.start}-{asked.end - 1}/{_SIZE}"
    return f"HTTP/1.1 206 Some\r\nContent-Length: {length}\r\nContent-Range: {said}\r\n\r\n".encode()


@contextmanager
def _server(*scripts: Script) -> Iterator[str]:
    """Plays one script for each connection, in order."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            for script in scripts:
                line, _ = listener.accept()
                with line:
                    script(line)

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/m"
        thread.join()


@pytest.fixture
def ask_both(source: type["Source"], road: "Road") -> Callable[[str], tuple[bytes, bool]]:
    """Reads two parts, the second one asked for within the first; whether that may be done again."""

    def run(url: str) -> tuple[bytes, bool]:
        route = Route(source(url), renewals=0)
        asker = Asker(url, route, limits=road.limits, check=road.flow.check, wait=road.flow.wait)
        data = b""
        asker.ask(_FIRST, guard_redirected=None)
        data += _received(asker, _HALF)
        asker.ask_ahead(_SECOND, guard_redirected=None)
        data += _received(asker, _HALF)
        asker.end_answer(is_whole=True)
        asker.ask(_SECOND, guard_redirected=None)
        data += _received(asker, 2 * _HALF)
        asker.disconnect()
        return data, route.may_ask_ahead

    return run


def _received(asker: Asker, count: int) -> bytes:
    room = bytearray(count)
    view = memoryview(room)
    while view:
        view = view[asker.receive(view) :]
    return bytes(room)


def test_the_next_part_is_asked_for_before_the_present_one_has_ended(
    ask_both: Callable[[str], tuple[bytes, bool]],
) -> None:
    requests: list[bytes] = []

    def script(line: socket.socket) -> None:
        requests.append(_request(line))
        line.sendall(_head(_FIRST) + b"a" * _HALF)
        requests.append(_request(line))  # else the rest never comes
        line.sendall(b"b" * _HALF + _head(_SECOND) + b"c" * 2 * _HALF)

    with _server(script) as url:
        data, may_ask_ahead = ask_both(url)

    assert data == b"a" * _HALF + b"b" * _HALF + b"c" * 2 * _HALF
    assert [b"bytes=0-79999" in requests[0], b"bytes=80000-159999" in requests[1]] == [True, True]
    assert may_ask_ahead


@pytest.mark.parametrize("is_silent", [True, False])
def test_a_server_that_answers_one_request_at_a_time_is_asked_anew_and_then_left_in_peace(
    ask_both: Callable[[str], tuple[bytes, bool]], is_silent: bool
) -> None:
    def first(line: socket.socket) -> None:
        _request(line)
        line.sendall(_head(_FIRST) + b"a" * 2 * _HALF)
        _request(line)
        if is_silent:
            assert line.recv(1) == b""  # until the client has enough of it

    def second(line: socket.socket) -> None:
        assert b"bytes=80000-159999" in _request(line)
        line.sendall(_head(_SECOND) + b"c" * 2 * _HALF)

    with _server(first, second) as url:
        data, may_ask_ahead = ask_both(url)

    assert data == b"a" * 2 * _HALF + b"c" * 2 * _HALF
    assert not may_ask_ahead
