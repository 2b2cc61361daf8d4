"""Whoever waits long for the lock of a cache says so, and for whom."""

import os
import threading
from pathlib import Path

import pytest

from comfyfarm.cache.disk import SYSTEM_DISK
from comfyfarm.cache.keeper import cache_lock as module
from comfyfarm.cache.keeper.cache_lock import cache_lock


def test_a_long_wait_is_told_once_with_who_has_the_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "TOLD_AFTER_S", 0.01)  # 5 s of waiting prove no more
    told = threading.Event()
    tell = module._tell

    def tell_and_say(fd: int, path: Path) -> None:
        tell(fd, path)
        told.set()

    monkeypatch.setattr(module, "_tell", tell_and_say)

    def work() -> None:
        with cache_lock(tmp_path, disk=SYSTEM_DISK):
            pass

    with cache_lock(tmp_path, disk=SYSTEM_DISK):
        thread = threading.Thread(target=work)
        thread.start()
        assert told.wait(30)
    thread.join()

    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert record.getMessage().startswith(f"{tmp_path}/.leases/door: waiting for another process")
    if Path("/proc/locks").exists():
        assert f"(pid {os.getpid()})" in record.getMessage()


def test_a_short_wait_is_not_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    inside = []

    def work() -> None:
        with cache_lock(tmp_path, disk=SYSTEM_DISK):
            inside.append(1)

    with cache_lock(tmp_path, disk=SYSTEM_DISK):
        thread = threading.Thread(target=work)
        thread.start()
        assert inside == []
    thread.join()

    assert (inside, caplog.records) == ([1], [])
