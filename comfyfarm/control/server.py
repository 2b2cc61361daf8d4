"""The control server: one process that owns PostgreSQL and Prefect, and writes `control.json`."""

import logging
import os
import signal
import threading
from collections import deque
from pathlib import Path
from types import FrameType

from comfyfarm.clock import SystemClock, pause
from comfyfarm.control.children import Child, end_left_over, log_tail
from comfyfarm.control.launch import start_control, stop_control, use_control
from comfyfarm.control.place import WAYS_OUT
from comfyfarm.control.postgres import Postgres, start_postgres
from comfyfarm.control.prefect_server import api_url, free_port, is_healthy, start_prefect, ui_url
from comfyfarm.control.state import ControlPaths, ControlStatus, FileLock, control_status, write_record
from comfyfarm.errors import ControlUnavailable
from comfyfarm.ledger.owner import process_start

logger = logging.getLogger(__name__)

__all__ = [
    "ControlPaths",
    "ControlStatus",
    "control_status",
    "run_control",
    "start_control",
    "stop_control",
    "use_control",
]

_POLL_S = 0.1
_UNUSED_POLL_S = 1.0
_PREFECT_READY_S = 110.0
_OTHER_ENDS_S = 20.0
_RESTARTS = 5
_RESTARTS_WITHIN_S = 60.0


class _Stopped(Exception):
    """A signal asked to stop."""


def run_control(state_dir: Path, *, with_prefect: bool = True, until_unused: bool = False) -> None:
    """Run the control server in this process, until SIGINT or SIGTERM. For the main thread.

    Args:
        state_dir: the user's state directory; the server's files lie in `control` in it.
        with_prefect: else PostgreSQL alone; `use_control` can still ask for Prefect later.
        until_unused: end with the last user (`use_control`) too.

    Raises:
        ControlUnavailable: it cannot run here; with the reason and what to set.
    """
    paths = ControlPaths(state_dir)
    paths.make()
    lock = FileLock(paths.server_lock)
    try:
        _wait_for_lock(lock, paths)
        _Server(paths, with_prefect=with_prefect, until_unused=until_unused).run()
    except ControlUnavailable as exc:
        paths.failure.write_text(str(exc), encoding="utf-8")
        raise
    finally:
        lock.close()


def _wait_for_lock(lock: FileLock, paths: ControlPaths) -> None:
    # Another one may be on its way out.
    deadline = SystemClock().monotonic() + _OTHER_ENDS_S
    while not lock.take():
        if SystemClock().monotonic() > deadline:
            raise ControlUnavailable(
                f"a control server of {paths.home} runs already; `comfyfarm control stop` ends it"
            )
        pause(_POLL_S)


class _Server:
    def __init__(self, paths: ControlPaths, *, with_prefect: bool, until_unused: bool) -> None:
        self._paths = paths
        self._clock = SystemClock()
        self._with_prefect = with_prefect
        self._stop = threading.Event()
        self._postgres: Postgres | None = None
        self._prefect: Child | None = None
        self._restarts: deque[float] = deque(maxlen=_RESTARTS)
        self._users = FileLock(paths.users_lock)
        self._status = ControlStatus(
            pid=os.getpid(),
            start=process_start(os.getpid()),
            until_unused=until_unused,
            logs=paths.logs,
        )

    def run(self) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._on_signal)
        for wish in (self._paths.want_prefect, self._paths.want_stay, self._paths.failure):
            wish.unlink(missing_ok=True)
        self._say()
        try:
            self._start()
            self._serve()
        except _Stopped:
            logger.info("stopping")
        finally:
            self._end()

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        self._stop.set()

    def _say(self, **changes: object) -> None:
        self._status = self._status.model_copy(update=changes)
        write_record(self._paths, self._status)

    def _start(self) -> None:
        end_left_over(self._paths.prefect_pid)
        self._start_postgres()
        if self._with_prefect:
            self._start_prefect()
        self._say(ready=True)
        logger.info(
            "ready: ledger %s, Prefect %s", self._status.ledger_url, self._status.ui_url or "not started"
        )

    def _start_postgres(self) -> None:
        self._postgres = start_postgres(self._paths.home, logs=self._paths.logs)
        self._say(ledger_url=self._postgres.url("comfyfarm"))

    def _start_prefect(self) -> None:
        paths, postgres = self._paths, self._postgres
        if postgres is None:
            return
        # Twice, as the port may be taken between the look and the start.
        for _ in range(2):
            port = free_port(paths.prefect_port)
            self._prefect = start_prefect(
                paths.prefect_home,
                socket_dir=postgres.place.socket_dir,
                port=port,
                logs=paths.logs,
                pid_file=paths.prefect_pid,
            )
            if self._is_up(self._prefect, port):
                self._say(api_url=api_url(port), ui_url=ui_url(port))
                return
            self._prefect.stop()
            paths.prefect_port.unlink(missing_ok=True)
        log = paths.logs / "prefect.log"
        raise ControlUnavailable(f"Prefect did not start; {WAYS_OUT}. The end of {log}:\n{log_tail(log)}")

    def _is_up(self, child: Child, port: int) -> bool:
        deadline = self._clock.monotonic() + _PREFECT_READY_S
        while self._clock.monotonic() < deadline and not child.has_ended():
            # A stranger may answer on that port for a moment: ours must live, and keep living.
            if is_healthy(port) and not child.has_ended():
                return True
            self._wait()
        return False

    def _wait(self) -> None:
        if self._stop.wait(_POLL_S):
            raise _Stopped

    def _serve(self) -> None:
        looked = self._clock.monotonic()
        while True:
            self._wait()
            self._revive()
            self._grant_wishes()
            if self._status.until_unused and self._clock.monotonic() - looked >= _UNUSED_POLL_S:
                looked = self._clock.monotonic()
                # Kept until the end, so that a new user waits and then starts a new server.
                if self._users.take():
                    logger.info("unused: ending")
                    return

    def _revive(self) -> None:
        if self._postgres is not None and self._postgres.child.has_ended():
            self._count_restart("PostgreSQL")
            self._start_postgres()
        if self._prefect is not None and self._prefect.has_ended():
            self._count_restart("Prefect")
            self._start_prefect()

    def _count_restart(self, name: str) -> None:
        now = self._clock.monotonic()
        logger.warning("%s ended by itself; starting it again", name)
        if len(self._restarts) == _RESTARTS and now - self._restarts[0] < _RESTARTS_WITHIN_S:
            raise ControlUnavailable(
                f"{name} ended {_RESTARTS} times within a minute; see {self._paths.logs}"
            )
        self._restarts.append(now)

    def _grant_wishes(self) -> None:
        if self._paths.want_stay.exists():
            self._say(until_unused=False)
            self._paths.want_stay.unlink(missing_ok=True)
        if self._paths.want_prefect.exists():
            self._add_prefect()
            self._paths.want_prefect.unlink(missing_ok=True)

    def _add_prefect(self) -> None:
        if self._prefect is not None:
            return
        try:
            self._start_prefect()
        except ControlUnavailable as exc:
            # Others use PostgreSQL: only who asked is told.
            self._prefect = None
            logger.warning("%s", exc)
            self._paths.failure.write_text(str(exc), encoding="utf-8")

    def _end(self) -> None:
        for child in (self._prefect, self._postgres):
            if child is not None:
                child.stop()
        self._paths.record.unlink(missing_ok=True)
        self._users.close()
