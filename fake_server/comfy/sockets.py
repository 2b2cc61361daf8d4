"""The WebSocket side: one socket for each client id, one sender for all, nothing replayed.

All messages go through one queue and one task that waits for each socket's buffer, so one stalled reader
stops everybody, as it does there. Source: facts of ComfyUI 0.27's server.py; [rec: ws_*].
"""

import asyncio
import contextlib
import json
import logging
import socket
import struct
import uuid
from collections.abc import Callable
from typing import Any

from aiohttp import WSMsgType, web

_LOG = logging.getLogger(__name__)

FEATURES: dict[str, Any] = {
    "supports_preview_metadata": True,
    "supports_model_type_tags": True,
    "max_upload_size": 104857600,
    "extension": {"manager": {"supports_v4": True}},
    "node_replacements": True,
    "assets": False,
}
_PREVIEW, _TEXT, _PREVIEW_WITH_METADATA = 1, 3, 4
_JPEG = 1


class Sockets:
    """The connected clients, and who of them the running prompt belongs to."""

    def __init__(self, queue_remaining: Callable[[], int]) -> None:
        self.on_fatal: Callable[[], None] = _stay
        self.client_id: Any = None
        self.last_node_id: str | None = None
        self._remaining = queue_remaining
        self._open: dict[Any, web.WebSocketResponse] = {}
        self._transports: dict[Any, asyncio.Transport | None] = {}
        self._features: dict[Any, dict[str, Any]] = {}
        self._outbox: asyncio.Queue[tuple[str | bytes, Any]] = asyncio.Queue()

    def send(self, kind: str, data: dict[str, Any], sid: Any = None) -> None:
        """Queue a message for one client, or for all when `sid` is None."""
        self._outbox.put_nowait((json.dumps({"type": kind, "data": data}), sid))

    def send_status(self) -> None:
        """Tell everyone how many prompts remain."""
        self.send("status", {"status": {"exec_info": {"queue_remaining": self._remaining()}}})

    def send_own(self, kind: str, data: dict[str, Any], *, broadcast: bool = False) -> None:
        """Send to the running prompt's client; without one to nobody, or to all with `broadcast`."""
        if self.client_id is not None or broadcast:
            self.send(kind, data, self.client_id)

    def send_preview(self, image: bytes, metadata: dict[str, Any]) -> None:
        """Send a JPEG preview, in the form that the client asked for."""
        described = self._features.get(self.client_id, {}).get("supports_preview_metadata") is True
        if described:
            text = json.dumps(metadata | {"image_type": "image/jpeg"}).encode()
            frame = struct.pack(">II", _PREVIEW_WITH_METADATA, len(text)) + text + image
        else:
            frame = struct.pack(">II", _PREVIEW, _JPEG) + image
        self._outbox.put_nowait((frame, self.client_id))

    def wants_metadata(self) -> bool:
        """Whether the running prompt's client takes previews with metadata."""
        return self._features.get(self.client_id, {}).get("supports_preview_metadata") is True

    def send_text(self, node_id: str, text: str) -> None:
        """Send a node's progress text."""
        name = node_id.encode()
        frame = struct.pack(">II", _TEXT, len(name)) + name + text.encode()
        self._outbox.put_nowait((frame, self.client_id))

    async def publish(self) -> None:
        """Send what is queued, one message after the other, for ever."""
        while True:
            message, sid = await self._outbox.get()
            try:
                targets = self._targets(sid)
            except TypeError:
                _LOG.exception("client id %r cannot be looked up: the real server ends here", sid)
                self.on_fatal()
                return
            for target in targets:
                await _deliver(target, message)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """The route /ws."""
        ws = web.WebSocketResponse()
        await ws.prepare(request)
        sid = request.rel_url.query.get("clientId", "") or uuid.uuid4().hex
        self._open[sid] = ws
        self._transports[sid] = request.transport
        self._features[sid] = {}
        status = {"status": {"exec_info": {"queue_remaining": self._remaining()}}, "sid": sid}
        self.send("status", status, sid)
        if self.client_id == sid and self.last_node_id is not None:
            self.send("executing", {"node": self.last_node_id}, sid)
        try:
            await self._listen(ws, sid)
        finally:
            # The entry goes even when a newer socket of the same id has taken it: recorded behaviour.
            for table in (self._open, self._transports, self._features):
                table.pop(sid, None)
        return ws

    def cut(self, sid: Any) -> None:
        """Reset a client's connection: it sees no close frame, only the end."""
        transport = self._transports.get(sid)
        if transport is None:
            return
        connection = transport.get_extra_info("socket")
        if connection is not None:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        transport.abort()

    async def close(self) -> None:
        """Close all sockets, at the end of the server."""
        for ws in list(self._open.values()):
            await ws.close(code=1001)

    def _targets(self, sid: Any) -> list[web.WebSocketResponse]:
        if sid is None:
            return list(self._open.values())
        return [self._open[sid]] if sid in self._open else []

    async def _listen(self, ws: web.WebSocketResponse, sid: Any) -> None:
        first = True
        async for message in ws:
            if message.type is not WSMsgType.TEXT:
                continue
            if first:
                self._greet(message.data, sid)
            first = False

    def _greet(self, text: str, sid: Any) -> None:
        try:
            message = json.loads(text)
        except ValueError:
            return
        if isinstance(message, dict) and message.get("type") == "feature_flags":
            flags = message.get("data", {})
            self._features[sid] = flags if isinstance(flags, dict) else {}
            self.send("feature_flags", FEATURES, sid)


def _stay() -> None:
    """Do nothing: the sender has ended, and HTTP goes on."""


async def _deliver(ws: web.WebSocketResponse, message: str | bytes) -> None:
    # A client that went away is no reason to stop; the real one only logs it.
    with contextlib.suppress(ConnectionError, RuntimeError):
        await (ws.send_str(message) if isinstance(message, str) else ws.send_bytes(message))
