"""The websocket as an endless iterator of messages. It reconnects; what was missed is not replayed."""

import asyncio
import logging
from collections.abc import AsyncIterator
from enum import Enum, auto

import websockets
from websockets.asyncio.client import ClientConnection, connect

from comfyfarm.clock import Clock, SystemClock
from comfyfarm.comfy.http import authorization, has_login
from comfyfarm.comfy.wire import Message, read_message

logger = logging.getLogger(__name__)

_MAX_FRAME_BYTES = 64 * 1024 * 1024  # `progress_state` of a graph of 150 nodes was 4.5 MB in all
_RECONNECT_S = (0.1, 0.5, 1.0, 2.0, 5.0)


class Link(Enum):
    """What happened to the connection: after either, ask by HTTP what was missed."""

    UP = auto()
    DOWN = auto()


Event = Message | Link


class EventStream:
    """Messages for one client id of one server.

    The old socket is closed before the id is used again: a server forgets the new socket of an
    id when the old one closes after it.
    Source: `websocket_handler` in ComfyUI's server.py at 0.27.0.
    """

    def __init__(self, url: str, client_id: str, *, clock: Clock | None = None) -> None:
        self._url = url
        scheme, _, rest = url.rstrip("/").partition("://")
        self._address = f"{'wss' if scheme == 'https' else 'ws'}://{rest}/ws?clientId={client_id}"
        self._clock = clock or SystemClock()
        self._socket: ClientConnection | None = None

    async def reconnect(self) -> None:
        """Give the present connection up for a new one: a server may have forgotten whose it is."""
        if self._socket is not None:
            await self._socket.close()

    async def __aiter__(self) -> AsyncIterator[Event]:
        tries = 0
        while True:
            try:
                async with self._connect() as socket:
                    tries, self._socket = 0, socket
                    yield Link.UP
                    async for message in _messages(socket):
                        yield message
            except (OSError, TimeoutError, websockets.WebSocketException) as exc:
                logger.debug("socket: %s", exc)
            self._socket = None
            yield Link.DOWN
            await self._clock.sleep(_RECONNECT_S[min(tries, len(_RECONNECT_S) - 1)])
            tries += 1

    def _connect(self) -> connect:
        return connect(
            self._address,
            open_timeout=10,
            close_timeout=2,
            # Pings notice a dead peer; a server that is busy computing answers them late.
            ping_interval=20,
            ping_timeout=60,
            max_size=_MAX_FRAME_BYTES,
            proxy=None,
            # User and password of the address are sent by the library itself.
            additional_headers={} if has_login(self._url) else authorization(self._url),
        )


async def _messages(socket: ClientConnection) -> AsyncIterator[Message]:
    try:
        async for frame in socket:
            message = read_message(frame)
            if message is not None:
                yield message
    except asyncio.IncompleteReadError as exc:
        raise OSError("the socket was cut") from exc
