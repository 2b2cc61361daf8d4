"""The WebSocket side: one socket for each client id, one sender for all, nothing replayed.

All messages go through one queue and one task that waits for each socket's buffer, so one stalled reader
stops everybody, as it does there. Source: facts of ComfyUI 0.27's server.py; [rec: ws_*].
"""

import asyncio
import contextlib
import json
import logging
import struct
import uuid
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import WSMsgType, web

from fake_server.comfy.behaviours import Behaviour
from fake_server.comfy.conditions import Conditions
from fake_server.comfy.distortion import Distortion
from fake_server.listening import reset

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
_MUTE = b""
"""In the outbox: from here on, this client hears nothing. No message is empty."""
_NOT_JSON = ""
"""In the outbox: what a custom node shows is no JSON, and the real server ends of sending it."""
_FLUSH_S = 0.5
_FROZEN_S = 0.02


class Sockets:
    """The connected clients, and who of them the running prompt belongs to."""

    def __init__(self, queue_remaining: Callable[[], int], conditions: Conditions) -> None:
        self.on_fatal: Callable[[], Awaitable[None]] = _stay
        self.client_id: Any = None
        self.last_node_id: str | None = None
        self._remaining = queue_remaining
        self._open: dict[Any, web.WebSocketResponse] = {}
        self._transports: dict[Any, asyncio.Transport | None] = {}
        self._features: dict[Any, dict[str, Any]] = {}
        self._outbox: asyncio.Queue[tuple[str | bytes, Any]] = asyncio.Queue()
        self._conditions = conditions
        self._distortion = Distortion()
        self._mute: set[Any] = set()

    def begin(self, client_id: Any, distortion: Distortion) -> None:
        """Say whose prompt runs now, and what is to happen to its messages."""
        self.client_id = client_id
        self._distortion = distortion

    def send(self, kind: str, data: dict[str, Any], sid: Any = None) -> None:
        """Queue a message for one client, or for all when `sid` is None."""
        try:
            text = json.dumps({"type": kind, "data": data})
        except TypeError:
            text = _NOT_JSON
        self._outbox.put_nowait((text, sid))

    def send_status(self) -> None:
        """Tell everyone how many prompts remain."""
        self.send("status", {"status": {"exec_info": {"queue_remaining": self._remaining()}}})

    def send_own(self, kind: str, data: dict[str, Any], *, broadcast: bool = False) -> None:
        """Send to the running prompt's client; without one to nobody, or to all with `broadcast`."""
        if self.client_id is None and not broadcast:
            return
        for each in self._distortion.apply(kind, data):
            self.send(*each, self.client_id)
        if self._distortion.mutes_after(kind, data):
            self._outbox.put_nowait((_MUTE, self.client_id))

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
                if message == _NOT_JSON and targets:
                    raise TypeError("a message is no JSON")
            except TypeError:
                _LOG.exception("a message for client id %r: the real server ends here", sid)
                await self.on_fatal()
                return
            while Behaviour.FREEZE_SENDER in self._conditions:  # noqa: ASYNC110 - it ends by time, too
                await asyncio.sleep(_FROZEN_S)
            if message == _MUTE:
                self._mute.update(targets)
            elif Behaviour.MUTE not in self._conditions:
                for target in targets:
                    await _deliver(target, message)
            self._outbox.task_done()

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """The route /ws."""
        ws = web.WebSocketResponse()
        await ws.prepare(request)
        sid = request.rel_url.query.get("clientId", "") or uuid.uuid4().hex
        generation = self._outbox  # a new one with each start: an earlier life's socket is none of ours
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
            self._mute.discard(ws)
            if generation is self._outbox:
                self._drop(sid)
        return ws

    def cut(self, sid: Any = None) -> None:
        """Reset a client's connection, or all: they see no close frame, only the end."""
        for each in [sid] if sid is not None else list(self._transports):
            transport = self._transports.get(each)
            if transport is not None:
                reset(transport)

    def forget(self, sid: Any = None) -> None:
        """Forget a client, or all: their sockets stay open and hear nothing more."""
        for each in [sid] if sid is not None else list(self._open):
            self._drop(each)

    async def flush(self) -> None:
        """Wait until what is queued was sent, unless someone does not read."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_FLUSH_S):
                await self._outbox.join()

    def clear(self) -> None:
        """Be as after a start: nobody is connected, nothing is queued."""
        self.begin(None, Distortion())
        self.last_node_id = None
        self.forget()
        self._mute.clear()
        self._outbox = asyncio.Queue()

    async def close(self) -> None:
        """Close all sockets, at the end of the server."""
        for ws in list(self._open.values()):
            await ws.close(code=1001)

    def _targets(self, sid: Any) -> list[web.WebSocketResponse]:
        found = [self._open[sid]] if sid is not None and sid in self._open else []
        return [ws for ws in (self._open.values() if sid is None else found) if ws not in self._mute]

    def _drop(self, sid: Any) -> None:
        for table in (self._open, self._transports, self._features):
            table.pop(sid, None)

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


async def _stay() -> None:
    """Do nothing: the sender has ended, and HTTP goes on."""


async def _deliver(ws: web.WebSocketResponse, message: str | bytes) -> None:
    # A client that went away is no reason to stop; the real one only logs it.
    with contextlib.suppress(ConnectionError, RuntimeError):
        await (ws.send_str(message) if isinstance(message, str) else ws.send_bytes(message))
