"""Adoption, quarantine, what is on its way, and what a sweep takes of it."""

import errno
import os
from pathlib import Path

import pytest

from comfyfarm.cache.blobs import PARTIAL_KEPT_S, BlobStore, blob_key
from comfyfarm.cache.disk import Disk
from comfyfarm.cache.held_folder import hold_folder
from comfyfarm.clock import SystemClock

_SHA = "ab" * 32
_OTHER = "cd" * 32
MIB = 1 << 20


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


def _fill(blobs: BlobStore, data: bytes) -> Path:
    temporary = blobs.temporary(_SHA)
    os.write(temporary.fd, data)
    return blobs.adopt(temporary, _SHA)


def test_a_blob_lies_under_its_hash_read_only(blobs: BlobStore) -> None:
    path = _fill(blobs, b"data")

    assert path == blobs.root / "sha256" / "ab" / _SHA == blobs.root / blob_key(_SHA)
    assert (path.read_bytes(), path.stat().st_mode & 0o777) == (b"data", 0o444)
    assert blobs.has(_SHA)
    assert blobs.has(_SHA, size=4)
    assert not blobs.has(_SHA, size=5)


def test_nothing_is_left_of_a_temporary_once_it_is_adopted_or_discarded(blobs: BlobStore) -> None:
    _fill(blobs, b"data")
    temporary = blobs.temporary("cd" * 32)
    temporary.discard()
    temporary.discard()

    assert sorted(path.name for path in blobs.root.iterdir()) == ["sha256"]


def test_the_second_to_come_adopts_the_file_of_the_first(blobs: BlobStore) -> None:
    second = blobs.temporary(_SHA)
    os.write(second.fd, b"data")
    inode = _fill(blobs, b"data").stat().st_ino

    assert blobs.adopt(second, _SHA).stat().st_ino == inode
    assert not (blobs.root / ".partial").exists()


def test_two_temporaries_of_one_hash_are_two_files(blobs: BlobStore) -> None:
    first, second = blobs.temporary(_SHA), blobs.temporary(_SHA)

    assert first.path != second.path
    assert first.path.exists()
    first.discard()
    second.discard()


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
            temporary = blobs.temporary(_SHA)
            os.write(temporary.fd, b"whole")
            try:
                blobs.adopt(temporary, _SHA)
            finally:
                temporary.discard()
        except OSError as exc:
            assert exc.errno == errno.ENOSPC  # noqa: PT017 - at some steps only
        else:
            finished += 1
            assert blobs.has(_SHA)
        if blobs.has(_SHA):
            assert blobs.path(_SHA).read_bytes() == b"whole"
        BlobStore(blobs.root).sweep()
        left = {path for path in blobs.root.rglob("*") if path.is_file()}
        assert left <= {blobs.path(_SHA)}
    assert 0 < finished < 29


def test_a_sweep_takes_the_temporaries_of_the_dead_only(blobs: BlobStore) -> None:
    alive = blobs.temporary(_SHA)
    (blobs.root / ".partial" / _OTHER).mkdir()
    (blobs.root / ".partial" / _OTHER / "1-dead").write_bytes(b"rest")
    (blobs.root / ".partial" / _SHA / "2-dead").write_bytes(b"rest")

    removed = blobs.sweep()

    assert removed == 2
    assert [path for path in (blobs.root / ".partial").rglob("*") if path.is_file()] == [alive.path]
    alive.discard()


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


def test_what_is_on_its_way_is_told_with_its_size_age_and_holder(blobs: BlobStore) -> None:
    assert blobs.partials() == ()
    held = hold_folder(_partial(blobs, _OTHER, age_s=0, data=b"d" * MIB), stop=_go_on)
    _partial(blobs, _SHA, age_s=3600)
    (blobs.root / ".partial" / "something").mkdir()

    first, second = blobs.partials()

    assert (first.sha256, first.is_held, second.sha256, second.is_held) == (_SHA, False, _OTHER, True)
    assert second.bytes >= MIB > first.bytes >= 8192
    assert first.age_s == pytest.approx(3600, abs=60)
    assert second.age_s == pytest.approx(0, abs=60)
    held.release()


def test_a_sweep_of_a_disk_that_cannot_be_written_takes_nothing(tmp_path: Path) -> None:
    class Broken(Disk):
        def step(self, what: str, path: Path) -> None:
            raise OSError(errno.EROFS, "read-only")

    blobs = BlobStore(tmp_path, Broken())
    folder = _partial(blobs, _SHA, age_s=PARTIAL_KEPT_S + 60)

    assert blobs.sweep() == 0
    assert (folder / "data").exists()
