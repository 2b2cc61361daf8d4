"""Adoption, quarantine, and what a sweep takes of what is on its way."""

import errno
import os
from pathlib import Path

from comfyfarm.cache.blobs import PARTIAL_KEPT_S, BlobStore, blob_key
from comfyfarm.cache.disk import Disk
from comfyfarm.cache.held_folder import hold_folder
from comfyfarm.cache.transfer.landing import Landing, open_landing
from comfyfarm.clock import SystemClock

_SHA = "ab" * 32
_OTHER = "cd" * 32


class _Refusing(Disk):
    """Its n-th step fails."""

    def __init__(self, n: int) -> None:
        self.left = n

    def step(self, what: str, path: Path) -> None:
        self.left -= 1
        if not self.left:
            raise OSError(errno.ENOSPC, "full", str(path))


def _go_on() -> None:
    return


def _partial(blobs: BlobStore, sha: str, *, age_s: float, data: bytes = b"d" * 8192) -> Path:
    """What a killed process left, so long ago."""
    folder = blobs.partial(sha)
    folder.mkdir(parents=True)
    for name, content in (("data", data), ("journal", b"{}"), ("lock", b"")):
        (folder / name).write_bytes(content)
    _age(folder, age_s)
    return folder


def _age(folder: Path, age_s: float) -> None:
    then = SystemClock().now() - age_s
    for path in (*folder.iterdir(), folder):
        os.utime(path, (then, then))


def _landed(blobs: BlobStore, data: bytes, folder: str = _SHA) -> Landing:
    """What has landed whole."""
    landing = open_landing(blobs.partial(folder), len(data), disk=blobs.disk, stop=_go_on)
    try:
        chunk = landing.buffer(0, _go_on)
        chunk.view[:] = data
        landing.put(chunk)
    except OSError:
        landing.close(keep=False)
        raise
    return landing


def _fill(blobs: BlobStore, data: bytes) -> Path:
    return blobs.adopt_landing(_landed(blobs, data), _SHA)


def test_a_blob_lies_under_its_hash_read_only(blobs: BlobStore) -> None:
    path = _fill(blobs, b"data")

    assert path == blobs.root / "sha256" / "ab" / _SHA == blobs.root / blob_key(_SHA)
    assert (path.read_bytes(), path.stat().st_mode & 0o777) == (b"data", 0o444)
    assert blobs.has(_SHA)
    assert blobs.has(_SHA, size=4)
    assert not blobs.has(_SHA, size=5)


def test_nothing_is_left_of_a_landing_once_it_is_adopted(blobs: BlobStore) -> None:
    _fill(blobs, b"data")

    assert sorted(path.name for path in blobs.root.iterdir()) == ["sha256"]


def test_the_second_to_come_adopts_the_file_of_the_first(blobs: BlobStore) -> None:
    second = _landed(blobs, b"data", _OTHER)
    inode = _fill(blobs, b"data").stat().st_ino

    assert blobs.adopt_landing(second, _SHA).stat().st_ino == inode
    assert not (blobs.root / ".partial").exists()


def test_a_quarantined_blob_is_out_of_sight_and_kept(blobs: BlobStore) -> None:
    _fill(blobs, b"bad")

    taken = blobs.quarantine(_SHA, reason="test")

    assert not blobs.has(_SHA)
    assert taken is not None
    assert taken.read_bytes() == b"bad"
    assert blobs.quarantine(_SHA, reason="again") is None


def test_the_last_few_of_the_wrong_are_kept_each_with_its_reason(blobs: BlobStore) -> None:
    shas = [f"{n:064x}" for n in range(5)]
    for n, sha in enumerate(shas):
        blobs.path(sha).parent.mkdir(parents=True, exist_ok=True)
        blobs.path(sha).write_bytes(b"%d" % n)
        blobs.quarantine(sha, reason=f"wrong for the {n}th time")

    quarantine = blobs.root / "quarantine"
    assert sorted(path.name for path in quarantine.iterdir()) == sorted(
        name for sha in shas[-3:] for name in (sha, f"{sha}.reason")
    )
    assert (quarantine / f"{shas[4]}.reason").read_text() == "wrong for the 4th time\n"


def test_a_full_disk_hides_wrong_bytes_all_the_same(tmp_path: Path) -> None:
    for n in range(1, 9):
        disk = _Refusing(n)
        blobs = BlobStore(tmp_path / str(n), disk)
        blobs.path(_SHA).parent.mkdir(parents=True)
        blobs.path(_SHA).write_bytes(b"bad")
        try:
            blobs.quarantine(_SHA, reason="test")
        except OSError:
            # Making the folder, or the move itself: then the caller knows that it still lies there.
            assert blobs.has(_SHA)
            assert n < 3
        else:
            assert not blobs.has(_SHA)
            assert n > 2


def test_a_full_disk_never_shows_half_of_an_adopted_blob(tmp_path: Path) -> None:
    finished = 0
    for n in range(1, 30):
        blobs = BlobStore(tmp_path / str(n), _Refusing(n))
        try:
            landing = _landed(blobs, b"whole")
            try:
                blobs.adopt_landing(landing, _SHA)
            finally:
                landing.close(keep=False)
        except OSError as exc:
            assert exc.errno == errno.ENOSPC  # noqa: PT017 - at some steps only
        else:
            finished += 1
            assert blobs.has(_SHA)
        if blobs.has(_SHA):
            assert blobs.path(_SHA).read_bytes() == b"whole"
        for folder in (blobs.root / ".partial").glob("*"):
            _age(folder, PARTIAL_KEPT_S + 60)
        BlobStore(blobs.root).sweep()
        left = {path for path in blobs.root.rglob("*") if path.is_file()}
        assert left <= {blobs.path(_SHA)}
    assert 0 < finished < 29


def test_a_transfer_that_can_be_resumed_survives_a_sweep_for_a_week(blobs: BlobStore) -> None:
    young = _partial(blobs, _SHA, age_s=PARTIAL_KEPT_S - 60)
    old = _partial(blobs, _OTHER, age_s=PARTIAL_KEPT_S + 60)

    assert blobs.sweep() == 1

    assert sorted(path.name for path in young.iterdir()) == ["data", "journal", "lock"]
    assert not old.exists()


def test_a_transfer_that_somebody_works_on_is_never_swept(blobs: BlobStore) -> None:
    folder = _partial(blobs, _SHA, age_s=0)
    with_lock = hold_folder(folder, stop=_go_on)
    _age(folder, PARTIAL_KEPT_S + 60)

    assert blobs.sweep() == 0
    with_lock.release()
    assert blobs.sweep() == 1
    assert not (blobs.root / ".partial" / _SHA).exists()


def test_what_a_process_left_that_died_at_its_very_end_goes_with_the_next_sweep(blobs: BlobStore) -> None:
    folder = _partial(blobs, _SHA, age_s=0)
    (folder / "data").unlink()
    (blobs.root / ".partial" / _OTHER).mkdir()

    assert blobs.sweep() == 1
    assert list(blobs.root.rglob("*")) == []


def test_a_sweep_of_a_disk_that_cannot_be_written_takes_nothing(tmp_path: Path) -> None:
    class Broken(Disk):
        def step(self, what: str, path: Path) -> None:
            raise OSError(errno.EROFS, "read-only")

    blobs = BlobStore(tmp_path, Broken())
    folder = _partial(blobs, _SHA, age_s=PARTIAL_KEPT_S + 60)

    assert blobs.sweep() == 0
    assert (folder / "data").exists()
