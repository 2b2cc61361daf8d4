"""A file that fills from many threads, in any order, through a small memory; resumed, and healed."""

import hashlib
import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from comfyfarm.cache.blobs import BlobStore
from comfyfarm.cache.transfer import syncer
from comfyfarm.cache.transfer.buffers import BufferPool
from comfyfarm.cache.transfer.chunks import CHUNK_BYTES, PART_BYTES
from comfyfarm.cache.transfer.landing import open_landing

if TYPE_CHECKING:
    from tests.core.cache.transfer.landing.conftest import Land

MIB = CHUNK_BYTES
SHA = "ab" * 32


@pytest.mark.parametrize("pool_buffers", [3, 64])
@pytest.mark.parametrize("size", [0, 1, 4095, 4096, 4097, MIB - 1, MIB, MIB + 1, 21 * MIB + 777])
def test_what_many_threads_bring_in_any_order_is_the_file(
    land: "type[Land]", folder: Path, tmp_path: Path, size: int, pool_buffers: int
) -> None:
    data, final = land.noise(size), tmp_path / "blobs" / "final"
    pool = BufferPool(pool_buffers, for_readers=1)
    landing = open_landing(folder, size, stop=land.go_on, pool=pool)
    land.fill(landing, data, threads=16)

    assert landing.missing() == ()
    assert landing.digest(land.go_on) == hashlib.sha256(data).hexdigest()
    landing.publish(final, mode=0o444)

    assert final.read_bytes() == data
    assert final.stat().st_mode & 0o777 == 0o444
    assert [path.name for path in tmp_path.iterdir()] == ["blobs"]
    assert pool._made == 0
    landing.close(keep=True)


def test_chunks_are_as_long_as_they_should_be_and_remember_what_they_received(
    land: "type[Land]", folder: Path
) -> None:
    landing = open_landing(folder, MIB + 5, stop=land.go_on)
    first, last = landing.buffer(0, land.go_on), landing.buffer(MIB, land.go_on)

    assert (len(first.view), len(last.view), first.filled, last.at) == (MIB, 5, 0, MIB)
    landing.drop(first)
    landing.drop(first)
    with pytest.raises(ValueError, match="before"):
        landing.put(first)
    landing.drop(last)
    landing.close(keep=False)


def test_the_second_to_bring_a_chunk_is_told_so_and_nothing_is_written(
    land: "type[Land]", folder: Path
) -> None:
    landing = open_landing(folder, MIB, stop=land.go_on)
    first, second = landing.buffer(0, land.go_on), landing.buffer(0, land.go_on)
    first.view[:], second.view[:] = b"a" * MIB, b"b" * MIB

    assert landing.put(first)
    assert landing.is_here(0)
    assert not landing.put(second)
    assert landing.digest(land.go_on) == hashlib.sha256(b"a" * MIB).hexdigest()
    landing.close(keep=False)


def test_a_chunk_that_comes_last_finds_the_others_on_disk(land: "type[Land]", folder: Path) -> None:
    data = land.noise(12 * MIB)
    landing = open_landing(folder, len(data), stop=land.go_on, pool=BufferPool(4, for_readers=1))
    for at in range(11 * MIB, -1, -MIB):
        assert land.bring(landing, data, at)

    assert landing.digest(land.go_on) == hashlib.sha256(data).hexdigest()
    landing.close(keep=False)


def test_a_digest_waits_for_the_last_chunk_and_can_be_stopped(land: "type[Land]", folder: Path) -> None:
    data = land.noise(2 * MIB)
    landing = open_landing(folder, len(data), stop=land.go_on)
    land.bring(landing, data, MIB)

    with pytest.raises(land.GaveUp):
        landing.digest(land.give_up)
    found: list[str] = []
    waiting = threading.Thread(target=lambda: found.append(landing.digest(land.go_on)))
    waiting.start()
    land.bring(landing, data, 0)
    waiting.join()

    assert found == [hashlib.sha256(data).hexdigest()]
    landing.close(keep=False)


def test_what_was_kept_is_not_asked_for_again(land: "type[Land]", folder: Path, tmp_path: Path) -> None:
    data = land.noise(5 * MIB + 9)
    landing = open_landing(folder, len(data), stop=land.go_on)
    for at in (MIB, 2 * MIB, 5 * MIB):
        land.bring(landing, data, at)
    landing.close(keep=True)
    landing.close(keep=False)

    again = open_landing(folder, len(data), stop=land.go_on)

    assert again.resumed_bytes == 2 * MIB + 9
    assert again.missing() == (range(MIB), range(3 * MIB, 5 * MIB))
    assert [again.is_here(at) for at in range(0, 6 * MIB, MIB)] == [False, True, True, False, False, True]
    assert land.fill(again, data) == 3 * MIB
    assert again.digest(land.go_on) == hashlib.sha256(data).hexdigest()
    again.publish(tmp_path / "final", mode=0o444)
    assert (tmp_path / "final").read_bytes() == data


def test_room_for_what_is_not_here_is_given_back_meanwhile(land: "type[Land]", folder: Path) -> None:
    data = land.noise(9 * MIB)
    landing = open_landing(folder, len(data), stop=land.go_on)
    assert (folder / "data").stat().st_blocks * 512 >= 9 * MIB
    land.bring(landing, data, MIB)
    landing.close(keep=True)

    assert (folder / "data").stat().st_size == 2 * MIB


def test_nothing_is_left_when_it_is_not_kept_or_nothing_came(
    land: "type[Land]", folder: Path, tmp_path: Path
) -> None:
    for keep in (True, False):
        landing = open_landing(folder, 2 * MIB, stop=land.go_on)
        if not keep:
            land.bring(landing, land.noise(2 * MIB), 0)
        landing.close(keep=keep)
        assert list(tmp_path.iterdir()) == []


def test_a_journal_that_says_more_than_the_data_has_is_not_believed(land: "type[Land]", folder: Path) -> None:
    data = land.noise(6 * MIB)
    landing = open_landing(folder, len(data), stop=land.go_on)
    land.fill(landing, data)
    landing.close(keep=True)
    os.truncate(folder / "data", 2 * MIB + 4096)

    again = open_landing(folder, len(data), stop=land.go_on)

    assert again.missing() == (range(2 * MIB, 6 * MIB),)
    again.close(keep=True)
    assert land.journalled(folder, len(data)) == (range(2 * MIB),)


@pytest.mark.parametrize("gone", ["data", "journal"])
def test_half_a_partial_starts_over(land: "type[Land]", folder: Path, gone: str) -> None:
    data = land.noise(3 * MIB)
    landing = open_landing(folder, len(data), stop=land.go_on)
    land.fill(landing, data)
    landing.close(keep=True)
    (folder / gone).unlink()

    again = open_landing(folder, len(data), stop=land.go_on)

    assert (again.resumed_bytes, again.missing()) == (0, (range(3 * MIB),))
    again.close(keep=False)


def test_a_data_file_that_was_made_read_only_just_before_the_end_is_writable_again(
    land: "type[Land]", folder: Path
) -> None:
    data = land.noise(2 * MIB)
    landing = open_landing(folder, len(data), stop=land.go_on)
    land.bring(landing, data, 0)
    landing.close(keep=True)
    (folder / "data").chmod(0o444)

    again = open_landing(folder, len(data), stop=land.go_on)

    assert (folder / "data").stat().st_mode & 0o200
    assert again.resumed_bytes == MIB
    again.close(keep=False)


def test_bad_parts_alone_are_asked_for_again(land: "type[Land]", folder: Path, tmp_path: Path) -> None:
    data = land.noise(2 * PART_BYTES + 3 * MIB + 1)
    bad = bytearray(data)
    bad[PART_BYTES + 5] ^= 1
    landing = open_landing(folder, len(data), stop=land.go_on, pool=BufferPool(8))
    land.fill(landing, bytes(bad))
    assert landing.digest(land.go_on) == hashlib.sha256(bad).hexdigest()
    parts = [data[at : at + PART_BYTES] for at in range(0, len(data), PART_BYTES)]
    right = [hashlib.sha256(part).hexdigest() for part in parts]
    wrong = [n for n, found in enumerate(landing.part_digests()) if found != right[n]]

    landing.forget(wrong)

    assert wrong == [1]
    assert landing.missing() == (range(PART_BYTES, 2 * PART_BYTES),)
    assert land.fill(landing, data) == PART_BYTES
    assert landing.digest(land.go_on) == hashlib.sha256(data).hexdigest()
    assert landing.part_digests() == tuple(right)
    landing.publish(tmp_path / "final", mode=0o444)
    assert (tmp_path / "final").read_bytes() == data


def test_all_that_was_forgotten_is_forgotten_by_the_next_process_too(
    land: "type[Land]", folder: Path
) -> None:
    data = land.noise(PART_BYTES + 5)
    landing = open_landing(folder, len(data), stop=land.go_on)
    land.fill(landing, data)
    landing.close(keep=True)
    assert land.journalled(folder, len(data)) == (range(len(data)),)
    landing = open_landing(folder, len(data), stop=land.go_on)

    landing.forget([0, 7])
    assert land.journalled(folder, len(data)) == (range(PART_BYTES, len(data)),)
    landing.forget_all()

    assert land.journalled(folder, len(data)) == ()
    assert landing.missing() == (range(len(data)),)
    landing.close(keep=True)
    assert not folder.exists()


def test_hashing_starts_over_in_the_middle_as_well(land: "type[Land]", folder: Path) -> None:
    data = land.noise(2 * PART_BYTES)
    landing = open_landing(folder, len(data), stop=land.go_on, pool=BufferPool(4))
    for at in range(0, len(data) - MIB, MIB):
        land.bring(landing, data, at)
    landing.forget([0])
    land.fill(landing, data)

    assert landing.digest(land.go_on) == hashlib.sha256(data).hexdigest()
    landing.close(keep=False)


def test_bad_bytes_that_wait_for_their_turn_are_forgotten_too(land: "type[Land]", folder: Path) -> None:
    data = land.noise(5 * MIB)
    landing = open_landing(folder, len(data), stop=land.go_on)
    for at in (MIB, 3 * MIB):
        land.bring(landing, b"\0" * len(data), at)
    landing.forget([0])
    land.fill(landing, data)

    assert landing.digest(land.go_on) == hashlib.sha256(data).hexdigest()
    landing.close(keep=False)


def test_the_journal_is_written_while_the_file_fills(
    land: "type[Land]", folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Patched because 128 MiB or 5 s are long for a test.
    monkeypatch.setattr(syncer, "SYNC_BYTES", 2 * MIB)
    data, seen, ticks = land.noise(4 * MIB), 0, threading.Event()
    landing = open_landing(folder, len(data), stop=land.go_on)
    for at in (0, MIB):
        land.bring(landing, data, at)
    while not seen:
        ticks.wait(0.005)
        seen = sum(map(len, land.journalled(folder, len(data))))

    assert seen == 2 * MIB
    landing.close(keep=False)


def test_a_few_bytes_are_journalled_after_a_while(
    land: "type[Land]", folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Patched because 5 s are long for a test.
    monkeypatch.setattr(syncer, "SYNC_S", 0.02)
    data, ticks = land.noise(2 * MIB), threading.Event()
    landing = open_landing(folder, len(data), stop=land.go_on)
    land.bring(landing, data, MIB)
    while not land.journalled(folder, len(data)):
        ticks.wait(0.005)

    assert land.journalled(folder, len(data)) == (range(MIB, 2 * MIB),)
    landing.close(keep=False)


def test_a_landing_is_adopted_as_a_blob_unless_another_was_first(
    land: "type[Land]", blobs: BlobStore
) -> None:
    data = land.noise(MIB + 1)
    path, inodes = blobs.path(SHA), []
    for _ in range(2):
        landing = open_landing(blobs.partial(SHA), len(data), disk=blobs.disk, stop=land.go_on)
        land.fill(landing, data)
        assert blobs.adopt_landing(landing, SHA) == path
        inodes.append(path.stat().st_ino)

    assert (path.read_bytes(), path.stat().st_mode & 0o777) == (data, 0o444)
    assert inodes[0] == inodes[1]
    assert [each.name for each in blobs.root.iterdir()] == ["sha256"]
