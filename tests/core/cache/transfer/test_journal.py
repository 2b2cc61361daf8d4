"""What a journal says, however it was torn; and which chunks of a file are here."""

import errno
from pathlib import Path

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from comfyfarm.cache.disk import SYSTEM_DISK, Disk
from comfyfarm.cache.transfer.chunks import CHUNK_BYTES, ChunkMap
from comfyfarm.cache.transfer.journal import format_header, format_ranges, open_journal, parse

MIB = CHUNK_BYTES
SIZE = 10 * MIB + 5


def _whole(*numbers: int, size: int = SIZE) -> ChunkMap:
    chunks = ChunkMap(size)
    for number in numbers:
        chunks.mark(range(number * MIB, number * MIB + 1))
    return chunks


@given(numbers=st.sets(st.integers(0, 10)), size=st.integers(10 * MIB + 1, 11 * MIB))
def test_a_journal_gives_back_what_was_written(numbers: set[int], size: int) -> None:
    chunks = _whole(*numbers, size=size)
    text = format_header(size) + format_ranges("here", chunks.ranges(here=True))

    reading = parse(text, size)

    assert reading.here.ranges(here=True) == chunks.ranges(here=True)
    assert reading.valid_bytes == len(text)


def test_what_is_lost_comes_off_again() -> None:
    text = format_header(SIZE) + format_ranges("here", [range(SIZE)])
    text += format_ranges("lost", [range(2 * MIB, 4 * MIB), range(10 * MIB, SIZE)])
    text += format_ranges("here", [range(3 * MIB, 4 * MIB)])

    assert parse(text, SIZE).here.ranges(here=False) == (range(2 * MIB, 3 * MIB), range(10 * MIB, SIZE))


def test_a_journal_torn_at_any_byte_keeps_its_whole_lines() -> None:
    lines = [
        format_header(SIZE),
        format_ranges("here", [range(2 * MIB)]),
        format_ranges("here", [range(4 * MIB, 5 * MIB), range(9 * MIB, SIZE)]),
    ]
    text = b"".join(lines)
    for cut in range(len(text) + 1):
        reading = parse(text[:cut], SIZE)
        kept = [sum(map(len, lines[:n])) for n in range(4) if sum(map(len, lines[:n])) <= cut][-1]
        assert reading.valid_bytes == kept
        assert (
            reading.here.here_bytes()
            == {0: 0, 1: 0, 2: 2 * MIB, 3: 4 * MIB + 5}[
                [sum(map(len, lines[:n])) for n in range(4)].index(kept)
            ]
        )


@pytest.mark.parametrize(
    "line",
    [
        b"\0" * 40 + b"\n",
        b"[]\n",
        b"7\n",
        b'{"here":[[0,1048576]],"lost":[]}\n',
        b'{"gone":[[0,1048576]]}\n',
        b'{"here":[[1,1048576]]}\n',
        b'{"here":[[0,1048577]]}\n',
        b'{"here":[[1048576,1048576]]}\n',
        b'{"here":[[-1048576,1048576]]}\n',
        b'{"here":[[0,11534336]]}\n',
        b'{"here":[[0]]}\n',
        b'{"here":[[false,1048576]]}\n',
        b'{"here":{"0":1}}\n',
    ],
)
def test_a_line_that_is_not_a_journals_ends_it(line: bytes) -> None:
    good = format_header(SIZE) + format_ranges("here", [range(MIB)])

    reading = parse(good + line + format_ranges("here", [range(MIB, 2 * MIB)]), SIZE)

    assert (reading.valid_bytes, reading.here.here_bytes()) == (len(good), MIB)


@pytest.mark.parametrize("text", [b"", b"\0\0", b'{"v":2,"size":10485765}\n', format_header(SIZE + 1)])
def test_a_foreign_journal_says_nothing(text: bytes) -> None:
    reading = parse(text + format_ranges("here", [range(MIB)]), SIZE)

    assert (reading.valid_bytes, reading.here.here_bytes()) == (0, 0)


def test_a_torn_end_is_cut_off_before_more_is_written(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    path.write_bytes(format_header(SIZE) + format_ranges("here", [range(MIB)]) + b'{"here":[[104')

    journal, here = open_journal(path, SIZE, disk=SYSTEM_DISK, is_data_there=True)
    journal.append("here", [range(5 * MIB, 6 * MIB)])
    journal.close()
    journal.close()

    assert here.ranges(here=True) == (range(MIB),)
    assert parse(path.read_bytes(), SIZE).here.ranges(here=True) == (range(MIB), range(5 * MIB, 6 * MIB))
    assert parse(path.read_bytes(), SIZE).valid_bytes == path.stat().st_size


def test_a_journal_whose_data_is_gone_starts_over(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    path.write_bytes(format_header(SIZE) + format_ranges("here", [range(SIZE)]))

    journal, here = open_journal(path, SIZE, disk=SYSTEM_DISK, is_data_there=False)
    journal.close()

    assert here.here_bytes() == 0
    assert path.read_bytes() == format_header(SIZE)


class _Full(Disk):
    def step(self, what: str, path: Path) -> None:
        if what == "write_at":
            raise OSError(errno.ENOSPC, "full")


def test_a_journal_that_cannot_be_written_leaves_no_descriptor_open(tmp_path: Path) -> None:
    before = psutil.Process().num_fds()

    with pytest.raises(OSError, match="full"):
        open_journal(tmp_path / "journal", SIZE, disk=_Full(), is_data_there=False)

    assert psutil.Process().num_fds() == before


@given(
    size=st.integers(0, 6 * MIB),
    marks=st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6), st.booleans()), max_size=6),
)
def test_chunks_are_a_set_of_offsets(size: int, marks: list[tuple[int, int, bool]]) -> None:
    chunks, model = ChunkMap(size), set[int]()
    starts = range(0, size, MIB)
    for start, end, here in marks:
        touched = {at for at in starts if start * MIB <= at < end * MIB}
        chunks.mark(range(start * MIB, end * MIB), here=here)
        model = model | touched if here else model - touched

    assert {at for at in starts if chunks.has(at)} == model
    assert chunks.here_bytes() == sum(chunks.length(at) for at in model)
    assert (not chunks.ranges(here=False)) == (len(model) == len(starts))
    for here in (True, False):
        found = {byte // MIB * MIB for each in chunks.ranges(here=here) for byte in each[::MIB]}
        assert found == (model if here else set(starts) - model)
    ends = [each.stop for each in chunks.ranges(here=True)]
    assert all(end == size or end % MIB == 0 for end in ends)
