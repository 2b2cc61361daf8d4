"""An index that is lost, torn, foreign, busy or read-only costs memory, and nothing else."""

import contextlib
import errno
import os
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from comfyfarm.cache.blobs import BlobStore
from comfyfarm.cache.keeper import index as index_module
from comfyfarm.cache.keeper.admission import Cause, Stay
from comfyfarm.cache.keeper.entries import list_entries
from comfyfarm.cache.keeper.index import Index
from comfyfarm.cache.keeper.keeper import Keeper
from comfyfarm.cache.keeper.known import Link, Pin, write_links, write_pins
from comfyfarm.cache.keeper.stats import read_stats
from comfyfarm.errors import TryLater

Put = Callable[..., Any]
Keep = Callable[..., Keeper]


@pytest.fixture
def index(blobs: BlobStore) -> Index:
    return Index(blobs.root)


def many_pins(index: Index, count: int) -> None:
    rows = [(f"{n:064x}", Pin("hand", "x" * 100, "vae/a.pt", float(n))) for n in range(count)]
    index.change(lambda db: write_pins(db, rows))


def test_an_index_that_was_never_made_is_empty_and_reading_makes_none(index: Index) -> None:
    known = index.read()

    assert (known.uses, known.pins, known.is_complete) == ({}, {}, True)
    assert not index.path.exists()


def test_what_is_written_is_read_back_even_names_that_are_no_utf8(index: Index, tmp_path: Path) -> None:
    link = Link(Path(os.fsdecode(b"/m/\xff\xe9.pt")), "vae", os.fsdecode("é.pt".encode()))
    pin = Pin("lock 12", "film", "vae/é.pt", 7.0)
    index.change(lambda db: write_links(db, [("a" * 64, link)]))
    index.change(lambda db: write_pins(db, [("b" * 64, pin)]))

    known = index.read()
    assert known.links == {"a" * 64: (link,)}
    assert known.pins == {"b" * 64: (pin,)}
    assert known.names("a" * 64) == ("vae/é.pt",)


def test_a_change_that_fails_in_the_middle_has_not_happened(index: Index) -> None:
    many_pins(index, 1)

    def half(db: sqlite3.Connection) -> None:
        db.execute("DELETE FROM pins")
        raise OSError(errno.ENOSPC, "full")

    with pytest.raises(OSError, match="full"):
        index.change(half)
    assert len(index.read().pins) == 1


@pytest.mark.parametrize("rest", [b"", b"no database at all, but long enough to look like one" * 20])
def test_a_broken_index_is_made_anew_from_the_disk(put: Put, keep: Keep, rest: bytes) -> None:
    model = put("a")
    view = keep().view("d1", [model])
    keep().index.path.write_bytes(rest)

    known = keep().index.read()
    keep().note(hits=[model.sha256])

    assert [link.path for link in known.links[model.sha256]] == [view / "vae" / "a.pt"]
    assert keep().index.read().counters == {("hits", ""): 1}
    assert [link.title for link in keep().index.read().links[model.sha256]] == ["vae/a.pt"]
    assert not rest or keep().index.path.with_name("index.db.broken").read_bytes() == rest


def test_of_a_torn_index_the_pins_that_can_be_read_are_kept(
    index: Index, caplog: pytest.LogCaptureFixture
) -> None:
    many_pins(index, 500)
    whole = index.path.read_bytes()
    # The last pages are lost: what the first ones hold can still be read.
    index.path.write_bytes(whole[: len(whole) // 2] + b"\xaa" * (len(whole) - len(whole) // 2))

    known = index.read()

    assert known.is_complete
    assert 0 < len(known.pins) <= 500
    assert "made anew" in caplog.text
    many_pins(index, 600)
    assert len(index.read().pins) == 600


@pytest.mark.parametrize("is_gone", [False, True])
def test_pins_outlive_an_index_that_is_lost_whole(put: Put, keep: Keep, is_gone: bool) -> None:
    a, b = put("a"), put("b")
    keep().pin({a.sha256: "vae/a.pt", b.sha256: ""}, who="lock 1", why="film")
    keep().unpin("lock 1", [b.sha256])
    if is_gone:
        keep().index.path.unlink()
    else:
        keep().index.path.write_bytes(b"broken" * 1000)

    kept = keep().evict([a.sha256, b.sha256])

    assert (kept.evicted, kept.stayed) == (
        (b.sha256,),
        {a.sha256: Stay(Cause.PINNED, "pinned by lock 1 (film)")},
    )
    assert keep().unpin("lock 1") == (a.sha256,)
    keep().index.path.unlink()
    assert keep().index.read().pins == {}


WRONG_ROWS = [
    "INSERT INTO uses VALUES ('a', 'many', 1, 1, '')",
    "INSERT INTO uses VALUES ('b', 1, 'then', 1, '')",
    "INSERT INTO uses VALUES ('c', 1, 1, 1e300, '')",
    "INSERT INTO uses VALUES (NULL, 1, 1, 1, '')",
    "INSERT INTO pins VALUES ('d', x'ff', '', '', 1)",
    "INSERT INTO pins VALUES ('e', 'hand', '', '', 'then')",
    "INSERT INTO pins VALUES ('f', 'hand', '', CAST(x'ff' AS TEXT), 1)",
    "INSERT INTO links VALUES (7, 'g', 'vae', 'a.pt')",
    "INSERT INTO links VALUES (x'610062', 'h', 'vae', 'a.pt')",
    "INSERT INTO counters VALUES ('hits', '', 'none')",
    "INSERT INTO counters VALUES ('hits', '', -1)",
]


@pytest.mark.parametrize("row", WRONG_ROWS)
def test_rows_of_another_kind_are_healed_and_the_right_ones_stay(
    put: Put, keep: Keep, row: str, caplog: pytest.LogCaptureFixture
) -> None:
    model = put("a")
    keep().pin({model.sha256: "vae/a.pt"}, who="hand")
    with contextlib.closing(sqlite3.connect(keep().index.path)) as db:
        db.execute(row)
        db.commit()

    list_entries(keep())
    read_stats(keep())

    assert keep().evict([model.sha256]).evicted == ()
    known = keep().index.read()
    assert (known.is_complete, list(known.pins)) == (True, [model.sha256])
    assert caplog.text.count("made anew") == 1


JUNK = [
    b"",
    b"junk",
    b"[]",
    b'{"v": 1}',
    b'{"v": 1, "pins": {"a": [{"who": 1, "why": "", "name": "", "since": 0}]}}',
]


@pytest.mark.parametrize("junk", JUNK)
@pytest.mark.parametrize("is_gone", [False, True])
def test_where_nobody_knows_what_was_pinned_nothing_leaves_until_a_person_says_so(
    put: Put, keep: Keep, blobs: BlobStore, junk: bytes, is_gone: bool, caplog: pytest.LogCaptureFixture
) -> None:
    a, b = put("a"), put("b")
    keep().pin({a.sha256: ""}, who="hand")
    if is_gone:
        keep().index.path.unlink()
    else:
        keep().index.path.write_bytes(b"broken" * 1000)
    (blobs.root / "pins.json").write_bytes(junk)

    assert keep().evict([a.sha256, b.sha256]).evicted == ()
    keep().note(hits=[a.sha256])  # makes the index anew
    assert keep().evict_to(0).evicted == ()
    assert "pin anew what is to stay" in caplog.text
    keep().pin({a.sha256: ""}, who="hand")
    assert keep().evict_to(0).evicted == ()

    lost = blobs.root / "pins.json.broken"
    assert str(lost) in caplog.text
    assert lost.read_bytes() == junk
    lost.unlink()
    assert keep().evict_to(0).evicted == (b.sha256,)


def test_a_broken_copy_beside_a_whole_index_is_only_replaced(put: Put, keep: Keep, blobs: BlobStore) -> None:
    a, b = put("a"), put("b")
    keep().pin({a.sha256: ""}, who="hand")
    (blobs.root / "pins.json").write_bytes(b"junk")

    assert keep().evict([a.sha256, b.sha256]).evicted == (b.sha256,)
    keep().pin({a.sha256: ""}, who="hand")
    keep().index.path.unlink()
    assert list(keep().index.read().pins) == [a.sha256]


def test_an_index_of_another_program_is_put_aside(index: Index) -> None:
    index.path.parent.mkdir(parents=True)
    with contextlib.closing(sqlite3.connect(index.path)) as db:
        db.execute("PRAGMA user_version = 99")
        db.execute("CREATE TABLE songs (name TEXT)")
        db.commit()

    many_pins(index, 2)

    assert len(index.read().pins) == 2
    assert index.path.with_name("index.db.broken").exists()


def test_a_journal_of_a_broken_index_is_not_played_into_the_new_one(index: Index) -> None:
    many_pins(index, 3)
    index.path.write_bytes(b"broken" * 1000)
    index.path.with_name("index.db-journal").write_bytes(b"\xd9\xd5\x05\xf9\x20\xa1\x63\xd7" + b"\0" * 5000)

    many_pins(index, 4)

    assert len(index.read().pins) == 4


def test_a_busy_index_is_waited_for_and_then_named(
    put: Put, keep: Keep, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(index_module, "BUSY_S", 0.05)  # nobody gives way here: 10 s of waiting prove no more
    model, keeper = put("a"), keep()
    keeper.note(hits=[model.sha256])
    with contextlib.closing(sqlite3.connect(keeper.index.path, isolation_level=None)) as db:
        db.execute("BEGIN EXCLUSIVE")
        keeper.note(hits=[model.sha256])
        with pytest.raises(TryLater, match="busy"):
            keeper.pin({model.sha256: ""}, who="hand")
        with keeper.hold([model]) as held:
            assert held.missing == ()
        assert "use is not noted" in caplog.text
        # Somebody may have pinned what cannot be read now.
        assert keeper.evict([model.sha256]).evicted == ()
    keeper.pin({model.sha256: ""}, who="hand")
    assert keep().index.read().counters == {("hits", ""): 1}


def test_what_a_killed_writer_left_half_done_is_rolled_back(
    index: Index, dies_at: Callable[..., bool]
) -> None:
    many_pins(index, 50)

    def work(_disk: object) -> None:
        def kill(db: sqlite3.Connection) -> None:
            db.execute("PRAGMA cache_size = 1")  # so that pages reach the file before the end
            db.execute("UPDATE pins SET why = randomblob(2000)")
            os.kill(os.getpid(), 9)

        index.change(kill)

    assert dies_at(0, work)
    assert index.path.with_name("index.db-journal").exists()
    known = index.read()
    assert known.is_complete
    assert {pin.why for (pin,) in known.pins.values()} == {"x" * 100}
