"""nginx on a free loopback port: what all clients of the group read from."""

import contextlib
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

INSTALL = "apt-get install nginx-light"
_READY_WITHIN_S = 10.0
_STOP_WITHIN_S = 10.0
_CONFIG = """\
{user}daemon off; worker_processes 1; pid {home}/nginx.pid; error_log {home}/error.log;
events {{ worker_connections 1024; }}
http {{
  access_log off; sendfile on; tcp_nopush on; keepalive_requests 1000000; types {{ }}
  client_body_temp_path {home}/body; proxy_temp_path {home}/proxy; fastcgi_temp_path {home}/fastcgi;
  uwsgi_temp_path {home}/uwsgi; scgi_temp_path {home}/scgi;
  server {{ listen 127.0.0.1:{port} backlog=512; root {root}; }}
}}
"""


@dataclass(frozen=True)
class WebServer:
    """A running nginx."""

    port: int
    pid: int

    @property
    def url(self) -> str:
        """Of its root."""
        return f"http://127.0.0.1:{self.port}"

    def cpu_s(self) -> float:
        """User and system time of its workers so far."""
        workers = psutil.Process(self.pid).children()
        return sum(used.user + used.system for used in (worker.cpu_times() for worker in workers))


def nginx_program() -> str | None:
    """Debian puts it where only root looks."""
    return shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin:/usr/local/sbin")


@contextmanager
def nginx(program: str, home: Path, root: Path) -> Iterator[WebServer]:
    """Serve the files below `root`, with ranges and sendfile; its own lie in `home`, removed at the end.

    Raises:
        RuntimeError: it does not answer.
    """
    home.mkdir(parents=True)
    port = _free_port()
    # As root its workers would become another user, who may not read our folder.
    user = "user root; " if os.geteuid() == 0 else ""
    config = home / "nginx.conf"
    config.write_text(_CONFIG.format(user=user, home=home, root=root, port=port))
    with (home / "error.log").open("ab") as log:
        process = subprocess.Popen(
            [program, "-e", str(home / "error.log"), "-p", str(home), "-c", str(config)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,  # Ctrl-C ends it through this context, not before its clients
        )
    try:
        _wait_until_it_answers(process, port, home)
        yield WebServer(port, process.pid)
    finally:
        process.terminate()
        try:
            process.wait(_STOP_WITHIN_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        shutil.rmtree(home)


def _wait_until_it_answers(process: subprocess.Popen[bytes], port: int, home: Path) -> None:
    deadline = time.monotonic() + _READY_WITHIN_S
    while time.monotonic() < deadline and process.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(0.05)
    raise RuntimeError(f"nginx does not answer: {(home / 'error.log').read_text(errors='replace')[-500:]}")


def _free_port() -> int:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        return int(held.getsockname()[1])
