"""`comfyfarm cache serve`, as a process of its own."""

import http.client
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from click.testing import CliRunner, Result

from comfyfarm.cache.blobs import blob_key
from comfyfarm.cli.cache_serve_command import command

_SHA256 = "ab" * 32
_PROGRAM = "from comfyfarm.cli.cache_serve_command import command; command()"


def call(*words: object) -> Result:
    return CliRunner().invoke(command, [str(word) for word in words], catch_exceptions=False)


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    blob = tmp_path / "cache" / blob_key(_SHA256)
    blob.parent.mkdir(parents=True)
    blob.write_bytes(b"some bytes")
    return tmp_path / "cache"


@pytest.fixture
def process(cache: Path) -> Iterator[subprocess.Popen[str]]:
    words = [sys.executable, "-c", _PROGRAM, "--cache", str(cache), "--port", "0"]
    environ = os.environ | {"COMFYFARM_PEER_TOKEN": "s3cret"}
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True, env=environ) as process:
        yield process
        process.kill()


def told_url(process: subprocess.Popen[str], cache: Path) -> str:
    assert process.stderr is not None
    line = process.stderr.readline()
    assert line.startswith(f"{cache} is served at http://127.0.0.1:")
    return line.split()[-1]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_serves_until_it_is_told_to_stop(
    process: subprocess.Popen[str], cache: Path, number: signal.Signals
) -> None:
    url = told_url(process, cache)
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=10)
    token = {"Authorization": "Bearer s3cret"}
    connection.request("GET", f"/{blob_key(_SHA256)}", headers=token)
    assert connection.getresponse().read() == b"some bytes"
    connection.request("GET", "/metrics", headers=token)
    assert b"\ncomfyfarm_cache_bytes 10\n" in connection.getresponse().read()

    process.send_signal(number)

    # The connection is kept alive by the client, and holds nothing up.
    _, said = process.communicate(timeout=10)
    connection.close()
    assert (process.returncode, said) == (0, "")


def test_who_has_not_the_token_is_refused(process: subprocess.Popen[str], cache: Path) -> None:
    url = told_url(process, cache)
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=10)
    connection.request("GET", f"/{blob_key(_SHA256)}")

    assert connection.getresponse().status == 401
    connection.close()


def test_a_port_that_is_taken_is_wrong_usage(cache: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]

        found = call("--cache", cache, "--port", port)

    assert found.exit_code == 2
    assert found.stderr == (
        f"comfyfarm: cannot listen at 127.0.0.1, port {port}: the port is taken; choose another with --port\n"
    )


def test_an_open_door_without_a_token_is_wrong_usage(cache: Path) -> None:
    found = call("--cache", cache, "--host", "0.0.0.0", "--port", 0)  # noqa: S104 - which is what is refused

    assert found.exit_code == 2
    assert "set COMFYFARM_PEER_TOKEN" in found.stderr


def test_a_token_that_cannot_be_sent_is_wrong_usage_and_not_said(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COMFYFARM_PEER_TOKEN", "hunter 2")

    found = call("--cache", cache, "--port", 0)

    assert found.exit_code == 2
    assert "hunter" not in found.output + found.stderr
