"""What a control server says about itself: its files, and `control.json` for other processes."""

import fcntl
import os
import re
import socket
import struct
from pathlib import Path
from urllib.parse import unquote

from pydantic import BaseModel, ConfigDict, ValidationError

from comfyfarm.control.prefect_server import is_healthy
from comfyfarm.ledger.owner import is_alive

_ANSWER_TIMEOUT_S = 3.0


class ControlPaths:
    """The files of the control server of one state directory."""

    def __init__(self, state_dir: Path) -> None:
        self.home = state_dir.absolute() / "control"
        self.record = self.home / "control.json"
        self.users_lock = self.home / "users.lock"
        """Held shared by each user, and alone by a server that ends with its last user."""
        self.server_lock = self.home / "server.lock"
        """Held by the one server that runs."""
        self.start_lock = self.home / "start.lock"
        """Held by who starts one."""
        self.failure = self.home / "failure.txt"
        """Why the last start failed."""
        self.want_prefect = self.home / "want-prefect"
        self.want_stay = self.home / "want-stay"
        self.logs = self.home / "logs"
        self.log = self.logs / "control.log"
        self.prefect_home = self.home / "prefect"
        self.prefect_pid = self.home / "prefect.pid"
        self.prefect_port = self.home / "prefect.port"

    def make(self) -> None:
        """Make the folder. Others may pass through it (PostgreSQL's user must), not look into it."""
        self.home.mkdir(parents=True, exist_ok=True)
        self.home.chmod(0o711 if os.geteuid() == 0 else 0o700)
        self.logs.mkdir(mode=0o700, exist_ok=True)


class ControlStatus(BaseModel):
    """A control server that runs."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    pid: int
    start: str
    """Start time of that process, as `process_start` has it."""
    until_unused: bool
    """Whether it ends with its last user."""
    ready: bool = False
    """Whether it has answered since it started."""
    ledger_url: str = ""
    api_url: str | None = None
    """None without Prefect."""
    ui_url: str | None = None
    logs: Path
    healthy: bool = False
    """Whether what it runs answered just now."""
    users_fd: int | None = None
    """From `use_control`: the descriptor of the lock that keeps the server up. A child process that
    needs the server as long as it lives itself inherits it (`pass_fds`)."""


def write_record(paths: ControlPaths, status: ControlStatus) -> None:
    """Replace `control.json` in one step."""
    unfinished = paths.record.with_suffix(".part")
    unfinished.touch(mode=0o600)
    unfinished.write_text(status.model_dump_json(indent=1) + "\n", encoding="utf-8")
    unfinished.replace(paths.record)


def read_record(paths: ControlPaths) -> ControlStatus | None:
    """What `control.json` says, if the process that wrote it lives."""
    try:
        status = ControlStatus.model_validate_json(paths.record.read_text(encoding="utf-8"))
    except (OSError, ValidationError):
        return None
    return status if is_alive(status.pid, status.start) else None


def control_status(state_dir: Path) -> ControlStatus | None:
    """The control server of this state directory, asked for its health; None when none runs."""
    status = read_record(ControlPaths(state_dir))
    if status is None:
        return None
    return status.model_copy(update={"healthy": status.ready and _answers(status)})


def _answers(status: ControlStatus) -> bool:
    socket_dir = unquote(status.ledger_url.partition("?host=")[2].partition("&")[0])
    port = re.search(r":(\d+)/api$", status.api_url or "")
    return _postgres_answers(socket_dir) and (port is None or is_healthy(int(port[1])))


def _postgres_answers(socket_dir: str) -> bool:
    """Ask whether it speaks TLS: the shortest question that PostgreSQL answers.

    Source: PostgreSQL's protocol, SSLRequest: length 8, code 80877103; the answer is one byte.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as question:
        question.settimeout(_ANSWER_TIMEOUT_S)
        try:
            question.connect(f"{socket_dir}/.s.PGSQL.5432")
            question.sendall(struct.pack("!ii", 8, 80877103))
            return question.recv(1) in {b"N", b"S"}
        except OSError:
            return False


class FileLock:
    """A lock that the kernel frees with the process. `take` never waits."""

    def __init__(self, path: Path) -> None:
        self.fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def take(self, *, shared: bool = False) -> bool:
        """Whether the lock is ours now."""
        try:
            fcntl.flock(self.fd, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def close(self) -> None:
        """Free it, unless a child process has inherited it."""
        os.close(self.fd)
