"""PostgreSQL from the wheel: its place, its data, and what a crash leaves."""

import asyncio
import importlib.util
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import asyncpg
import psutil
import pytest

from comfyfarm.control import place as place_module
from comfyfarm.control.identity import Identity, can_reach, postgres_identity
from comfyfarm.control.place import find_place, make_folder
from comfyfarm.control.postgres import Postgres, running_postgres
from comfyfarm.errors import ControlUnavailable
from comfyfarm.ledger.owner import is_alive, process_start

WaitUntil = Callable[[Callable[[], bool]], None]
FindProcesses = Callable[[Path], list[psutil.Process]]


def ask(server: Postgres, query: str, *, database: str = "comfyfarm") -> object:
    async def once() -> object:
        connection = await asyncpg.connect(server.url(database))
        try:
            return await connection.fetchval(query)
        finally:
            await connection.close()

    return asyncio.run(once())


def test_it_has_our_databases_and_keeps_data(state_dir: Path, find_processes: FindProcesses) -> None:
    home = state_dir / "control"
    with running_postgres(home) as first:
        assert ask(first, "SELECT 1", database="prefect") == 1
        assert ask(first, "SHOW server_encoding") == "UTF8"
        assert ask(first, "SHOW listen_addresses") == ""
        ask(first, "CREATE TABLE kept AS SELECT 'a' || chr(228) AS word")
        socket_dir = first.place.socket_dir
        assert stat.S_IMODE(socket_dir.stat().st_mode) == 0o700
    assert find_processes(state_dir) == []

    with running_postgres(home) as second:
        assert second.place == first.place
        assert ask(second, "SELECT word FROM kept") == "aä"
        assert second.is_ready()
    assert not second.is_ready()


def test_the_users_own_postgresql_variables_do_not_matter(
    state_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGDATA", "/nowhere")
    monkeypatch.setenv("PGPORT", "1")

    with running_postgres(state_dir / "control"):
        pass


def test_a_left_over_server_without_its_guard_is_ended(state_dir: Path, wait_until: WaitUntil) -> None:
    home = state_dir / "control"
    with running_postgres(home) as first:
        ask(first, "CREATE TABLE kept AS SELECT 1 AS n")
        pid = int((home / "postgres.pid").read_text().split()[0])
        start = process_start(pid)
        first.child._guard.kill()
        first.child._guard.wait()
        assert is_alive(pid, start)

        with running_postgres(home) as second:
            assert not is_alive(pid, start)
            assert ask(second, "SELECT n FROM kept") == 1


def test_a_left_over_server_is_found_by_its_data_too(state_dir: Path) -> None:
    home = state_dir / "control"
    with running_postgres(home) as first:
        pid = int((home / "postgres.pid").read_text().split()[0])
        start = process_start(pid)
        first.child._guard.kill()
        first.child._guard.wait()
        (home / "postgres.pid").unlink()

        with running_postgres(home):
            assert not is_alive(pid, start)


def test_a_stale_pid_file_whose_number_is_now_another_process_is_dropped(state_dir: Path) -> None:
    home = state_dir / "control"
    with running_postgres(home) as first:
        data = first.place.data
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as stranger:
        (data / "postmaster.pid").write_text(f"{stranger.pid}\n{data}\n1\n5432\n")
        (home / "postgres.pid").write_text(f"{stranger.pid} 1")

        with running_postgres(home) as second:
            assert ask(second, "SELECT 1") == 1

        assert stranger.poll() is None
        stranger.kill()


def test_it_survives_kill_of_all_at_once(state_dir: Path, wait_until: WaitUntil) -> None:
    home = state_dir / "control"
    with running_postgres(home) as first:
        ask(first, "CREATE TABLE kept AS SELECT 1 AS n")
        pid = int((home / "postgres.pid").read_text().split()[0])
        first.child._guard.kill()
        os.kill(pid, signal.SIGKILL)

        with running_postgres(home) as second:
            assert ask(second, "SELECT n FROM kept") == 1


def test_a_server_that_cannot_start_says_why(state_dir: Path) -> None:
    home = state_dir / "control"

    with (
        pytest.raises(ControlUnavailable, match=r"(?s)--local.*unrecognized configuration parameter"),
        running_postgres(home, settings=["no_such_setting=1"]),
    ):
        pass


def test_an_interrupted_first_start_is_made_good(state_dir: Path) -> None:
    home = state_dir / "control"
    home.mkdir()
    place = find_place(home, postgres_identity())
    make_folder(place.folder / "data.part", identity=postgres_identity(), mode=0o700)
    (place.folder / "data.part" / "half").touch()

    with running_postgres(home) as server:
        assert ask(server, "SELECT 1") == 1


def test_a_long_path_gets_a_short_socket_folder(state_dir: Path) -> None:
    home = state_dir / ("long" * 20) / "control"

    with running_postgres(home) as server:
        assert len(str(server.place.socket_dir)) < 92
        assert server.place.data.is_relative_to(home)
        assert ask(server, "SELECT 1") == 1
    with running_postgres(home) as again:
        assert again.place == server.place
    server.place.socket_dir.rmdir()


def test_a_private_home_is_left_private(state_dir: Path) -> None:
    private = state_dir / "private"
    private.mkdir(mode=0o700)
    home = private / "control"

    with running_postgres(home) as server:
        assert ask(server, "SELECT 1") == 1
        folder = server.place.folder

    assert stat.S_IMODE(private.stat().st_mode) == 0o700
    if os.geteuid() == 0:
        assert not folder.is_relative_to(private)
        assert folder.is_relative_to(Path(tempfile.gettempdir()).resolve())
    # The next home in the temporary directory clears up what belongs to one that is gone.
    shutil.rmtree(private)
    private.mkdir(mode=0o700)
    (private / "other").mkdir()
    other = find_place(private / "other", postgres_identity())
    assert not folder.exists()
    if not other.folder.is_relative_to(private):
        shutil.rmtree(other.folder)


def test_programs_that_the_user_cannot_read_are_copied_once(
    state_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = state_dir / "control"
    shipped = place_module.check_installed()
    monkeypatch.setattr(place_module, "can_reach", lambda _who, path: not path.is_relative_to(shipped))

    with running_postgres(home) as server:
        assert ask(server, "SELECT 1") == 1
        (copy,) = server.place.folder.glob("programs-*")
    stamp = copy.stat().st_mtime_ns
    with running_postgres(home):
        assert [path.stat().st_mtime_ns for path in server.place.folder.glob("programs-*")] == [stamp]


def test_what_a_user_can_reach_is_told_by_modes(tmp_path: Path) -> None:
    stranger = Identity(uid=54321, gid=54321)
    folder = Path(tempfile.mkdtemp())
    try:
        assert not can_reach(stranger, folder)
        assert can_reach(None, folder)
        folder.chmod(0o711)
        assert can_reach(stranger, folder)
    finally:
        folder.rmdir()


def test_a_folder_of_somebody_else_is_refused(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.mkdir()
    (tmp_path / "link").symlink_to(target)

    with pytest.raises(ControlUnavailable, match="not ours"):
        make_folder(tmp_path / "link", identity=None, mode=0o700)
    with pytest.raises(ControlUnavailable, match="not ours"):
        make_folder(target, identity=Identity(uid=54321, gid=54321), mode=0o700)


def test_without_the_wheel_it_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The wheel is installed here; only its absence can be played.
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)

    with pytest.raises(ControlUnavailable, match=r"comfyfarm\[embedded\].*PREFECT_API_URL.*--local"):
        place_module.check_installed()
