"""One server, one socket, one client id: messages handed to whoever follows their prompt."""

import asyncio
import contextlib
import logging
import uuid
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Self

from comfyfarm.clock import Clock, SystemClock
from comfyfarm.comfy.client import ComfyClient
from comfyfarm.comfy.events import EventStream, Link
from comfyfarm.comfy.wire import Message, Phase
from comfyfarm.ids import JobId

logger = logging.getLogger(__name__)

_KEPT_MESSAGES = 30  # the last ones go into the evidence of a dead letter


class Inbox:
    """What the socket said of one prompt. A hint only: one stalled reader silences it for all."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._news = asyncio.Event()
        self.has_started = False
        self.has_ended = False
        self.heard_at = clock.monotonic()
        """When it last moved, in the clock's monotonic seconds."""
        self.latest: deque[str] = deque(maxlen=_KEPT_MESSAGES)
        self._node: str | None = None

    def put(self, message: Message) -> None:
        """Note a message of this prompt."""
        self.has_started = True
        self.has_ended = self.has_ended or message.ends_prompt
        self.heard_at = self._clock.monotonic()
        self._node = message.node or self._node
        self.latest.append(message.text)
        if message.ends_prompt or message.type == "execution_start":
            self._news.set()

    def at_node(self, node: str) -> None:
        """Which node runs, said at a reconnect: another one than before is progress."""
        if node != self._node:
            self._node, self.heard_at = node, self._clock.monotonic()

    def note(self, phase: Phase) -> None:
        """Note what polling found: the first sight of a running prompt is a start."""
        if phase is Phase.IN_PROGRESS and not self.has_started:
            self.has_started = True
            self.heard_at = self._clock.monotonic()

    def wake(self) -> None:
        """Have the follower look again: the connection came or went."""
        self._news.set()

    async def wait(self, timeout_s: float) -> None:
        """Return at the next start, end or change of the connection, or after `timeout_s` seconds."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._news.wait()
        self._news.clear()


class Session:
    """A client and its socket. Every prompt submitted with `client_id` is heard here."""

    def __init__(self, url: str, *, client_id: str | None = None, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self.client_id = client_id or str(uuid.uuid4())
        self.client = ComfyClient(url)
        self._events = EventStream(url, self.client_id, clock=self._clock)
        self._inboxes: dict[str, Inbox] = {}
        self._up = asyncio.Event()
        self._reader: asyncio.Task[None] | None = None
        self.condemned = ""
        """Why nothing that this server still has can be waited for; empty while it is of use."""

    @property
    def url(self) -> str:
        """The server's base address."""
        return self.client.url

    async def __aenter__(self) -> Self:
        self._reader = asyncio.create_task(self._read(), name=f"socket {self.client.shown_url}")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._reader is not None:
            self._reader.cancel()
            await asyncio.gather(self._reader, return_exceptions=True)
        await self.client.close()

    async def listening(self, timeout_s: float) -> bool:
        """Wait until the socket is open, so that a submission misses nothing; False after the time."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._up.wait()
        return self._up.is_set()

    async def reconnect(self) -> None:
        """Connect anew with the same client id: the server says then which node of ours runs."""
        await self._events.reconnect()

    def condemn(self, why: str) -> None:
        """Have every follower give its prompt up: the server is restarted, or of no use any more."""
        self.condemned = why
        self._wake()

    def absolve(self) -> None:
        """The server was restarted: it is as good as new."""
        self.condemned = ""

    @contextmanager
    def follow(self, prompt_id: JobId) -> Iterator[Inbox]:
        """The messages of one prompt, from now on."""
        inbox = self._inboxes[prompt_id] = Inbox(self._clock)
        try:
            yield inbox
        finally:
            self._inboxes.pop(prompt_id, None)

    async def _read(self) -> None:
        async for event in self._events:
            if isinstance(event, Message):
                self._hand_on(event)
                continue
            if event is Link.UP:
                self._up.set()
            else:
                self._up.clear()
            self._wake()

    def _wake(self) -> None:
        for inbox in self._inboxes.values():
            inbox.wake()

    def _hand_on(self, message: Message) -> None:
        inbox = self._inboxes.get(message.prompt_id or "")
        if inbox is not None:
            inbox.put(message)
        elif message.prompt_id is None and message.type == "executing" and message.node is not None:
            # After a reconnect, of whichever prompt of ours is running: only one does.
            for one in self._inboxes.values():
                if one.has_started and not one.has_ended:
                    one.at_node(message.node)
