"""PostgreSQL and a Prefect server on it, which are taken away and come back as they were."""

import asyncio
import contextlib
import os
import signal
from pathlib import Path

from comfyfarm.control.children import Child
from comfyfarm.control.postgres import Postgres, start_postgres
from comfyfarm.control.prefect_server import api_url, is_healthy, start_prefect

_READY_S = 120.0


class Control:
    """Blocking work runs in threads."""

    def __init__(self, home: Path, *, prefect_port: int | None) -> None:
        """`prefect_port`: None for no Prefect at all."""
        self._home, self._port = home, prefect_port
        self._logs = home / "logs"
        self._postgres: Postgres | None = None
        self._prefect: Child | None = None
        home.mkdir()
        home.chmod(0o711)  # PostgreSQL's own user must reach it although we may be root

    @property
    def ledger_url(self) -> str:
        """The address of the ledger."""
        return self._started().url("comfyfarm")

    @property
    def api_url(self) -> str | None:
        """What PREFECT_API_URL is set to."""
        return None if self._port is None else api_url(self._port)

    async def start(self) -> None:
        """Start both, and wait until they answer.

        Raises:
            RuntimeError: Prefect did not answer in time.
        """
        await self.start_postgres()
        if self._port is not None:
            await self.start_prefect()

    async def start_postgres(self) -> None:
        """Start PostgreSQL on its data."""
        self._postgres = await asyncio.to_thread(start_postgres, self._home, logs=self._logs)

    async def stop_postgres(self) -> None:
        """Shut it down fast: connections are cut, open transactions dropped."""
        if self._postgres is not None:
            await asyncio.to_thread(self._postgres.stop)

    async def start_prefect(self) -> None:
        """Start Prefect on the same port and the same database as before."""
        port, socket_dir = self._port or 0, self._started().place.socket_dir
        self._prefect = await asyncio.to_thread(
            start_prefect,
            self._home / "prefect",
            socket_dir=socket_dir,
            port=port,
            logs=self._logs,
            pid_file=self._pid_file,
        )
        async with asyncio.timeout(_READY_S):
            while not await asyncio.to_thread(is_healthy, port):
                if self._prefect.has_ended():
                    raise RuntimeError(f"Prefect did not start; see {self._logs / 'prefect.log'}")
                await asyncio.sleep(0.2)

    async def kill_prefect(self) -> None:
        """End it without a word."""
        if self._prefect is None:
            return
        with contextlib.suppress(OSError, ValueError):
            os.killpg(int(self._pid_file.read_text(encoding="ascii").split()[0]), signal.SIGKILL)
        await asyncio.to_thread(self._prefect.stop)

    async def stop(self) -> None:
        """End both."""
        if self._prefect is not None:
            await asyncio.to_thread(self._prefect.stop)
        await self.stop_postgres()

    def _started(self) -> Postgres:
        if self._postgres is None:
            raise RuntimeError("PostgreSQL was not started")
        return self._postgres

    @property
    def _pid_file(self) -> Path:
        return self._home / "prefect.pid"
