"""The id of a cache is one, whoever asks first."""

import threading
from pathlib import Path

import pytest

from comfyfarm.cache.disk import Disk
from comfyfarm.cache.peers.identity import cache_id


def test_an_id_stays(tmp_path: Path) -> None:
    first = cache_id(tmp_path / "cache")

    assert cache_id(tmp_path / "cache") == first
    assert cache_id(tmp_path / "other") != first


def test_all_who_ask_at_once_get_the_same(tmp_path: Path) -> None:
    start = threading.Barrier(8)
    found: list[str] = []

    def ask() -> None:
        start.wait()
        found.append(cache_id(tmp_path))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(found) == 8
    assert len(set(found)) == 1


@pytest.mark.parametrize("torn", [b"", b"abc", b"z" * 32, b"0" * 33])
def test_a_torn_id_is_made_anew(tmp_path: Path, torn: bytes) -> None:
    (tmp_path / "peer-id").write_bytes(torn)

    assert cache_id(tmp_path) == (tmp_path / "peer-id").read_text()
    assert len(cache_id(tmp_path)) == 32


def test_a_crash_at_any_step_leaves_a_cache_that_gets_its_id(tmp_path: Path) -> None:
    class Dying(Disk):
        left = 0

        def step(self, what: str, path: Path) -> None:
            self.left -= 1
            if self.left < 0:
                raise OSError(28, "No space left on device", str(path))

    for steps in range(20):
        disk = Dying()
        disk.left = steps
        try:
            found = cache_id(tmp_path / str(steps), disk=disk)
        except OSError:
            found = cache_id(tmp_path / str(steps))
        assert cache_id(tmp_path / str(steps)) == found
        if disk.left > 0:
            break
    else:
        pytest.fail("it never came through")
