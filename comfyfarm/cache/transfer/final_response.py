"""The head of an answer, read by the standard library from a socket of ours, however many go before it."""

import http.client
import io
import math
import socket
from collections.abc import Callable
from typing import cast

_MOST_HEAD_BYTES = 1 << 20
_MOST_INTERIM = 100
_SWITCHING_PROTOCOLS = 101


class RawSocket(io.RawIOBase):
    """The socket as a file. While it is dry, reads bring only what has been read ahead of the head."""

    def __init__(self, receive: Callable[[memoryview], int]) -> None:
        self._receive = receive
        self.is_dry = False
        self.left_bytes: float = _MOST_HEAD_BYTES
        """Beyond these no more is read."""

    def readable(self) -> bool:
        """Always."""
        return True

    def readinto(self, buffer: object) -> int | None:
        """As `io.RawIOBase` has it; None while nothing may be read."""
        if self.is_dry:
            return None
        if self.left_bytes <= 0:
            raise http.client.HTTPException("a head without an end")
        count = self._receive(memoryview(cast(bytearray, buffer)).cast("B"))
        self.left_bytes -= count
        return count


class _FileOnly:
    """What `HTTPResponse` wants of a socket."""

    def __init__(self, file: io.BufferedIOBase) -> None:
        self._file = file

    def makefile(self, _mode: str) -> io.BufferedIOBase:
        return self._file


def final_response(raw: RawSocket, file: io.BufferedIOBase) -> http.client.HTTPResponse:
    """That which follows all interim ones, such as 103. `file` reads from `raw`.

    Source: RFC 9110, 15.2. The library reads over 100 by itself, and over no other.

    Raises:
        http.client.HTTPException, ValueError: this is not HTTP, or has no end.
        Exception: whatever the socket raises.
    """
    for _ in range(_MOST_INTERIM):
        response = http.client.HTTPResponse(cast(socket.socket, _FileOnly(file)), method="GET")
        response.begin()
        if response.status >= 200 or response.status == _SWITCHING_PROTOCOLS:
            raw.left_bytes = math.inf
            return response
        # Else its end would close what the next one is read from.
        response.fp = None  # type: ignore[assignment]
    raise http.client.HTTPException("interim answers without an end")
