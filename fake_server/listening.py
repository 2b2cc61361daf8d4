"""A served application: its port, and every connection that came in by it.

It closes without leaving a transport behind, and it can vanish and come back as a killed process does.
"""

import asyncio
import socket
import struct

from aiohttp import web

_SHUTDOWN_TIMEOUT_S = 0.5
_BACKLOG = 128
# A connection is accepted in one turn of the loop, and its protocol learns of it in the next but one.
_ACCEPT_TURNS = 4
_LINGER_RESET = struct.pack("ii", 1, 0)


class Listening:
    """An application on a port."""

    def __init__(self, app: web.Application) -> None:
        self._app = app
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=_SHUTDOWN_TIMEOUT_S)
        self._transports: set[asyncio.Transport] = set()
        self._server: asyncio.Server | None = None
        self._address = ("127.0.0.1", 0)
        app[LISTENING] = self

    async def open(self, host: str, port: int) -> str:
        """Start serving on the running loop.

        Returns:
            The base URL, with the port that was really taken.

        Raises:
            OSError: the port is taken.
        """
        await self._runner.setup()
        self._address = (host, port)
        try:
            await self.listen()
        except OSError:
            await self._runner.cleanup()
            raise
        name = f"[{host}]" if ":" in host else host
        return f"http://{name}:{self._address[1]}"

    async def listen(self) -> None:
        """Accept connections (again), on the port that was taken first."""
        host, port = self._address
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self._protocol, host, port, backlog=_BACKLOG)
        self._address = (host, self._server.sockets[0].getsockname()[1])

    async def vanish(self, *, spare: asyncio.BaseTransport | None = None) -> None:
        """Be gone as a killed process is: nothing listens, and every connection is reset.

        Args:
            spare: a connection that stays, to be answered by.
        """
        await self._stop_listening()
        for transport in self._transports - {spare}:
            reset(transport)

    async def close(self) -> None:
        """Say goodbye where the other side listens, and end every connection before the loop ends."""
        await self._stop_listening()
        await self._runner.cleanup()
        # aiohttp closes politely: a connection whose peer does not read would outlive the loop.
        while self._transports:
            for transport in list(self._transports):
                transport.abort()
            await asyncio.sleep(0)

    async def _stop_listening(self) -> None:
        if self._server is None:
            return
        server, self._server = self._server, None
        # A server that is closed while it accepts leaks the connection: the transport's own constructor
        # fails on it. So it stops accepting first, and what it has accepted becomes known.
        for listener in server.sockets:
            asyncio.get_running_loop().remove_reader(listener.fileno())
        for _ in range(_ACCEPT_TURNS):
            await asyncio.sleep(0)
        server.close()

    def _protocol(self) -> asyncio.Protocol:
        server = self._runner.server
        assert server is not None
        return _Watched(server(), self._transports)


LISTENING: web.AppKey[Listening] = web.AppKey("listening", Listening)
"""Where an application finds what it is served by."""


def reset(transport: asyncio.BaseTransport) -> None:
    """End a connection with a reset: the other side sees an error, not an end."""
    connection = transport.get_extra_info("socket")
    if connection is not None and connection.fileno() >= 0:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_RESET)
    if isinstance(transport, asyncio.WriteTransport):
        transport.abort()


class _Watched(asyncio.Protocol):
    """aiohttp's protocol, with a note of its transport while it is open."""

    def __init__(self, inner: asyncio.Protocol, transports: set[asyncio.Transport]) -> None:
        self._inner = inner
        self._transports = transports
        self._own: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if isinstance(transport, asyncio.Transport):
            self._own = transport
            self._transports.add(transport)
        self._inner.connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._own is not None:
            self._transports.discard(self._own)
        self._inner.connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._inner.data_received(data)

    def eof_received(self) -> bool | None:
        return self._inner.eof_received()

    def pause_writing(self) -> None:
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._inner.resume_writing()
