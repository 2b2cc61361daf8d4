"""The S3 server that tests and the demo use: several at once, none left behind."""

import dataclasses
import signal
import subprocess
import sys
from pathlib import Path

import psutil

from comfyfarm.cache.places.objects import S3Access, open_place
from comfyfarm.clock import SystemClock, pause
from infra.s3_server import S3Server, s3_server

_HOLD = """
import sys
from pathlib import Path
from infra.s3_server import s3_server
with s3_server(Path(sys.argv[1])) as server:
    print(server.endpoint, flush=True)
    sys.stdin.read()
"""


async def test_a_second_server_runs_beside_the_first(s3: S3Server, access: S3Access, tmp_path: Path) -> None:
    with s3_server(tmp_path / "second", bucket="other") as second:
        theirs = dataclasses.replace(access, endpoint=second.endpoint, access_key=second.access_key)
        place = open_place(f"s3://{s3.bucket}/beside", access=access)
        await place.put_bytes("k", b"first")

        assert await place.read_bytes("k") == b"first"
        assert second.endpoint != s3.endpoint
        assert theirs.access_key != access.access_key
        assert second.secret_key not in repr(second)


def test_a_server_ends_when_its_starter_is_killed(tmp_path: Path) -> None:
    starter = subprocess.Popen(
        [sys.executable, "-c", _HOLD, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert starter.stdout is not None
    assert starter.stdout.readline().startswith(b"http://127.0.0.1:")
    weeds = [child for child in psutil.Process(starter.pid).children() if child.name() == "weed"]
    starter.send_signal(signal.SIGKILL)
    starter.communicate()

    assert len(weeds) == 1
    assert _ends(weeds[0], within_s=20)


def _ends(process: psutil.Process, *, within_s: float) -> bool:
    clock = SystemClock()
    deadline = clock.monotonic() + within_s
    while clock.monotonic() < deadline:
        # A zombie has ended: whoever adopted it has not looked yet.
        if not process.is_running() or process.status() == psutil.STATUS_ZOMBIE:
            return True
        pause(0.1)
    return False
