"""An aiohttp application on a free port, served from its own thread with its own event loop.

So synchronous code, asynchronous code and subprocesses all reach it, and any number run side by side.
"""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from aiohttp import web

from fake_server.listening import Listening

_START_TIMEOUT_S = 20.0
_STOP_TIMEOUT_S = 10.0


@contextmanager
def serve(app: web.Application, *, host: str = "127.0.0.1", port: int = 0) -> Iterator[str]:
    """Serve `app` until the block ends, and yield its base URL.

    Args:
        app: an application that has not been served before.
        host: the address to listen on.
        port: 0 takes a free one.

    Raises:
        OSError: the port is taken.
    """
    serving = _Serving(app, host, port)
    serving.start()
    try:
        yield serving.url
    finally:
        serving.stop()


class _Serving:
    """The thread, its loop, and what listens inside it."""

    def __init__(self, app: web.Application, host: str, port: int) -> None:
        self.url = ""
        self._app = app
        self._host = host
        self._port = port
        self._ready = threading.Event()
        self._error: BaseException | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._thread = threading.Thread(target=self._run, name="fake-server", daemon=True)

    def start(self) -> None:
        """Return once the port answers, or raise what kept it from doing so."""
        self._thread.start()
        if not self._ready.wait(_START_TIMEOUT_S):
            raise TimeoutError(f"the fake server did not start within {_START_TIMEOUT_S:g} s")
        if self._error is not None:
            self._thread.join(_STOP_TIMEOUT_S)
            raise self._error

    def stop(self) -> None:
        """Close every connection and end the thread."""
        if self._loop is not None and self._stop is not None and self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(_STOP_TIMEOUT_S)

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except OSError as exc:
            self._error = exc
        finally:
            self._ready.set()

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        listening = Listening(self._app)
        self.url = await listening.open(self._host, self._port)
        try:
            self._ready.set()
            await self._stop.wait()
        finally:
            await listening.close()
