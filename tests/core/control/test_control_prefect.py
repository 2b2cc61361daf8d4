"""Prefect on the control server: real servers, so only a few of them."""

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from urllib.parse import urlsplit

import psutil
import pytest

from comfyfarm.control.prefect_server import free_port, prefect_environ
from comfyfarm.control.server import ControlStatus, control_status, start_control, stop_control, use_control

WaitUntil = Callable[..., None]
FindProcesses = Callable[[Path], list[psutil.Process]]


def fetch(url: str, path: str) -> str:
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=10)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        assert answer.status == http.HTTPStatus.OK
        return answer.read().decode()
    finally:
        connection.close()


def _at(settings: Mapping[str, object], *path: str) -> object:
    found: object = settings
    for part in path:
        assert isinstance(found, Mapping)
        found = found[part]
    return found


@pytest.mark.prefect
@pytest.mark.timeout(240)
def test_prefect_runs_with_our_settings_comes_back_and_ends_with_its_parent(
    state_dir: Path,
    wait_until: WaitUntil,
    find_processes: FindProcesses,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Another server of the user's must not leak in.
    monkeypatch.setenv("PREFECT_API_URL", "http://127.0.0.1:9/api")
    first = start_control(state_dir)
    assert first.api_url is not None
    assert first.ui_url is not None
    assert first.healthy
    settings = json.loads(fetch(first.api_url, "/api/admin/settings"))
    server = _at(settings, "server")
    assert isinstance(server, Mapping)
    assert _at(server, "tasks", "tag_concurrency_slot_wait_seconds") == 0.2
    assert str(_at(server, "concurrency", "lease_storage")).endswith("lease_storage.filesystem")
    assert _at(server, "services", "task_run_recorder", "batch_size") == 50
    assert _at(server, "services", "event_persister", "batch_size") == 100
    assert _at(server, "services", "db_vacuum", "enabled") is True
    assert _at(server, "analytics_enabled") is False
    assert "<html" in fetch(first.ui_url, "/")
    assert json.loads(fetch(first.ui_url, "/ui-settings"))["api_url"] == first.api_url
    for process in find_processes(state_dir):
        for connection in process.net_connections(kind="inet"):
            assert connection.laddr.ip == "127.0.0.1"

    os.kill(first.pid, signal.SIGKILL)
    wait_until(lambda: find_processes(state_dir) == [], timeout_s=10.0)

    with use_control(state_dir) as second:
        assert second.healthy
        assert second.api_url == first.api_url
        assert stop_control(state_dir)
    assert find_processes(state_dir) == []


_ADDING = """
import sys
from pathlib import Path
from comfyfarm.control.server import use_control
state_dir = Path(sys.argv[1])
with use_control(state_dir, with_prefect=False) as plain:
    with use_control(state_dir) as full:
        with use_control(state_dir, with_prefect=False) as third:
            for status in (plain, full, third):
                print(status.model_dump_json())
"""


@pytest.mark.prefect
@pytest.mark.timeout(240)
def test_prefect_is_added_to_the_server_of_a_plain_user(
    state_dir: Path, as_plain_user: Sequence[str], wait_until: WaitUntil, find_processes: FindProcesses
) -> None:
    command = [*as_plain_user, sys.executable, "-c", _ADDING, str(state_dir)]
    done = subprocess.run(command, capture_output=True, text=True)

    assert done.returncode == 0, done.stderr
    plain, full, third = map(ControlStatus.model_validate_json, done.stdout.splitlines())
    assert plain.api_url is None
    assert full.pid == plain.pid
    assert full.api_url is not None
    assert full.healthy
    assert third.api_url == full.api_url
    wait_until(lambda: control_status(state_dir) is None)
    wait_until(lambda: find_processes(state_dir) == [])


def test_the_port_of_last_time_is_used_again_when_it_is_free(tmp_path: Path) -> None:
    remembered = tmp_path / "port"
    port = free_port(remembered)

    assert free_port(remembered) == port
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", port))
        taken.listen()
        assert free_port(remembered) != port
    remembered.write_text("rubbish")
    assert 0 < free_port(remembered) < 65536


def test_settings_of_other_servers_stay_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PREFECT_API_KEY", "secret")
    monkeypatch.setenv("PGPORT", "1")

    environ = prefect_environ(tmp_path / "home", Path("/run/with space"), 4321)

    assert "PREFECT_API_KEY" not in environ
    assert "PGPORT" not in environ
    assert environ["PREFECT_UI_API_URL"] == "http://127.0.0.1:4321/api"
    assert environ["PREFECT_SERVER_DATABASE_CONNECTION_URL"].endswith("?host=/run/with%20space&port=5432")


def test_nothing_of_prefect_is_imported() -> None:
    code = "import sys, comfyfarm.control.server; print([m for m in sys.modules if m.startswith('prefect')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout == "[]\n"
