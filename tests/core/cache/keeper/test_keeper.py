"""Leases, room, pins and notes, as one process sees them."""

import errno
import fcntl
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from comfyfarm.cache.blobs import BlobStore
from comfyfarm.cache.keeper.admission import Cause, Stay
from comfyfarm.cache.keeper.keeper import Bounds, Keeper
from comfyfarm.clock import SystemClock
from comfyfarm.errors import InputError, NoRoom, TransferError

Put = Callable[..., Any]
Make = Callable[..., Any]
Keep = Callable[..., Keeper]
Failing = Callable[..., Any]


class Still(SystemClock):
    """A wall clock that a test sets."""

    at = 5000.0

    def now(self) -> float:
        return self.at


def here(blobs: BlobStore, *models: Any) -> list[bool]:
    return [blobs.has(model.sha256, size=model.size) for model in models]


def leases(blobs: BlobStore) -> list[Path]:
    return sorted((blobs.root / ".leases").glob("*.lease"))


def test_what_is_held_is_not_evicted_until_it_is_let_go(put: Put, keep: Keep, blobs: BlobStore) -> None:
    a, b = put("a"), put("b")
    with keep().hold([a], who="job 7") as held:
        kept = keep().evict([a.sha256, b.sha256])

        assert (held.missing, held.evicted) == ((), ())
        assert (kept.evicted, kept.stayed) == ((b.sha256,), {a.sha256: Stay(Cause.IN_USE, "in use by job 7")})
        assert keep().evict_to(0).evicted == ()
    assert here(blobs, a, b) == [True, False]
    assert leases(blobs) == []
    assert keep().evict_to(0).evicted == (a.sha256,)


def test_room_is_made_for_what_is_missing_before_it_comes(
    put: Put, keep: Keep, blobs: BlobStore, blob: Make
) -> None:
    old, newer, pinned = put("old", used=1), put("newer", used=2), put("pinned", used=0)
    keep().pin({pinned.sha256: ""}, who="hand")
    new = blob("new")
    with keep(3999).hold([new, newer]) as held:
        assert (held.missing, held.evicted) == ((new.sha256,), (old.sha256,))
    assert here(blobs, old, newer, pinned, new) == [False, True, True, False]


def test_what_cannot_fit_is_refused_and_nothing_leaves(
    put: Put, keep: Keep, blobs: BlobStore, blob: Make
) -> None:
    old, pinned = put("old"), put("pinned")
    keep().pin({pinned.sha256: "vae/film.pt"}, who="lock 12", why="film.lock")

    with pytest.raises(NoRoom) as caught, keep(2500).hold([blob("new", size=1501)]):
        pytest.fail("held")

    assert "vae/film.pt (1000 bytes): by lock 12 (film.lock)" in str(caught.value)
    assert here(blobs, old, pinned) == [True, True]
    assert leases(blobs) == []


def test_last_use_decides_who_leaves_and_holding_is_use(put: Put, blobs: BlobStore, blob: Make) -> None:
    clock = Still()
    keeper = Keeper(blobs, Bounds(2000, 0), clock=clock)
    a, b = put("a", used=1), put("b", used=2)
    with keeper.hold([a]):
        clock.at += 10
    keeper.note(hits=[b.sha256])
    clock.at += 10
    keeper.note(used=[a.sha256])

    with keeper.hold([blob("new")]) as held:
        assert held.evicted == (b.sha256,)


def test_two_leases_do_not_promise_the_same_room_but_share_the_same_file(keep: Keep, blob: Make) -> None:
    a, b = blob("a", size=600), blob("b", size=600)
    with keep(1000).hold([a]):
        with keep(1000).hold([a]) as shared:
            assert shared.missing == (a.sha256,)
        with pytest.raises(NoRoom, match="promised to other processes: 600 bytes"), keep(1000).hold([b]):
            pytest.fail("held")
    with keep(1000).hold([b]) as held:
        assert held.missing == (b.sha256,)


def test_a_file_that_was_cut_short_has_to_come_anew(put: Put, keep: Keep, blobs: BlobStore) -> None:
    model = put("a")
    path = blobs.path(model.sha256)
    path.chmod(0o644)
    os.truncate(path, 10)

    with keep().hold([model]) as held:
        assert held.missing == (model.sha256,)


def test_a_pin_may_come_before_its_file(put: Put, keep: Keep, blob: Make) -> None:
    model = blob("a")
    keep().pin({model.sha256: "vae/a.pt"}, who="hand")
    put("a")

    assert keep().evict([model.sha256]).stayed == {model.sha256: Stay(Cause.PINNED, "pinned by hand")}
    assert keep().unpin("lock 1") == ()
    assert keep().unpin("hand", ["f" * 64]) == ()
    assert keep().unpin("hand") == (model.sha256,)
    assert keep().evict([model.sha256]).evicted == (model.sha256,)


def test_a_file_is_free_when_its_last_pin_is_gone(put: Put, keep: Keep) -> None:
    model, other = put("a"), put("b")
    keep().pin({model.sha256: "", other.sha256: ""}, who="lock 1")
    keep().pin({model.sha256: ""}, who="hand")
    assert keep().unpin("lock 1") == (model.sha256, other.sha256)
    assert keep().evict([model.sha256, other.sha256]).evicted == (other.sha256,)
    keep().pin({model.sha256: ""}, who="lock 2")
    assert keep().unpin(None, [model.sha256]) == (model.sha256,)
    assert keep().evict([model.sha256]).evicted == (model.sha256,)


def test_what_was_used_is_counted_by_source_and_no_secret_is_kept(put: Put, keep: Keep) -> None:
    model = put("a")
    keep().note(hits=[model.sha256, "f" * 64], fetched={model.sha256: 900}, source="https://me:pw@h/a?sig=1")
    keep().note(fetched={"e" * 64: 100}, source="mirror")
    known = keep().index.read()

    assert known.counters[("hits", "")] == 2
    assert known.counters[("misses", "")] == 2
    assert known.counters[("fetched_bytes", "mirror")] == 100
    assert list(known.uses) == [model.sha256]
    assert "pw" not in str(known)
    assert "sig=1" not in str(known)


def test_nothing_is_made_where_nothing_is_needed_or_asked(keep: Keep, blobs: BlobStore, blob: Make) -> None:
    with keep().hold([]) as held:
        assert held.missing == ()
    keep().note(used=["f" * 64])
    keep().check([blob("a")])
    keep().look()

    assert not blobs.root.exists()


@pytest.mark.parametrize("code", [errno.EROFS, errno.ENOSPC])
def test_what_is_here_can_be_held_on_a_disk_that_takes_nothing(
    put: Put, keep: Keep, blobs: BlobStore, failing: Failing, blob: Make, code: int
) -> None:
    model = put("a")
    broken = keep(disk=failing(1, code, stays=True))
    with broken.hold([model]) as held:
        assert held.missing == ()
        # No lease could be written: the file itself is locked, so that who can write does not take it.
        assert keep().evict([model.sha256]).stayed == {
            model.sha256: Stay(Cause.IN_USE, "in use by a process that had no room for a lease")
        }
    assert keep().index.read().uses == {}
    with pytest.raises(TransferError, match="the cache cannot be written"), broken.hold([blob("new")]):
        pytest.fail("held")
    assert keep().evict([model.sha256]).evicted == (model.sha256,)


def test_rests_of_transfers_leave_unless_somebody_writes_them(
    keep: Keep, blobs: BlobStore, blob: Make
) -> None:
    def rest(sha: str) -> Path:
        folder = blobs.root / ".partial" / sha
        folder.mkdir(parents=True)
        (folder / "data").write_bytes(b"x" * 4096)
        (folder / "journal").write_bytes(b"{}")
        (folder / "lock").touch()
        return folder

    dead, alive, wanted = rest("a" * 64), rest("b" * 64), blob("new", size=8000)
    mine = rest(wanted.sha256)
    with (alive / "lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with keep(12_200).hold([wanted]) as held:
            assert held.missing == (wanted.sha256,)
        assert (dead.exists(), alive.exists(), mine.exists()) == (False, True, True)
        with pytest.raises(NoRoom), keep(8200).hold([wanted]):
            pytest.fail("held")
    with keep(8200).hold([wanted]):
        assert [path.name for path in (blobs.root / ".partial").iterdir()] == [wanted.sha256]


def test_wrong_files_that_were_kept_leave_first(put: Put, keep: Keep, blobs: BlobStore, blob: Make) -> None:
    wrong, good = put("wrong"), put("good")
    taken = keep().quarantine(wrong.sha256, reason="test")

    with keep(2000).hold([blob("new")]) as held:
        assert held.evicted == ()
    assert taken is not None
    assert not taken.exists()
    assert here(blobs, good) == [True]


def test_room_is_made_again_for_what_became_wrong_while_it_was_held(
    put: Put, keep: Keep, blobs: BlobStore
) -> None:
    wrong, good, other = put("wrong"), put("good"), put("other")
    keeper = keep(3000)
    with keeper.hold([wrong, good]) as held:
        assert held.missing == ()
        taken = keeper.quarantine(wrong.sha256, reason="test")
        assert taken is not None

        assert keeper.make_room([wrong, good]) == ((wrong.sha256,), ())
        assert not taken.exists()
        assert here(blobs, good, other) == [True, True]
        with pytest.raises(NoRoom):
            keep(2500).make_room([wrong, good, other])
        assert keep(2000).make_room([wrong, good]) == ((wrong.sha256,), (other.sha256,))
    assert leases(blobs) == []


def test_room_on_a_disk_that_takes_nothing_is_needed_only_for_what_is_missing(
    put: Put, keep: Keep, failing: Failing, blob: Make
) -> None:
    broken = keep(disk=failing(1, errno.EROFS, stays=True))

    assert broken.make_room([put("a")]) == ((), ())
    with pytest.raises(TransferError, match="the cache cannot be written"):
        broken.make_room([blob("new")])


def test_files_that_cannot_lie_beside_each_other_are_refused_beforehand(keep: Keep, blob: Make) -> None:
    above, below = blob("a").called("x"), blob("b").called("x/y.pt")
    for models in ([above, below], [below, above]):
        with pytest.raises(InputError, match=r"vae/x: is a file, and vae/x/y\.pt needs a folder"):
            keep().check(models)
    for name in ("m" * 300, "/".join(["m" * 250] * 20)):
        with pytest.raises(InputError, match="is longer"):
            keep().check([blob("a").called(name)])


def test_a_cache_is_no_larger_than_asked_and_says_what_stayed(put: Put, keep: Keep) -> None:
    a, b, c = put("a", used=1), put("b", used=2), put("c", used=3)
    assert keep().evict_to(2000).evicted == (a.sha256,)
    keep().pin({b.sha256: ""}, who="hand")
    kept = keep().evict_to(500)
    assert (kept.evicted, kept.stayed) == ((c.sha256,), {b.sha256: Stay(Cause.PINNED, "pinned by hand")})
    assert keep().evict(["f" * 64]).stayed == {"f" * 64: Stay(Cause.ABSENT, "is not here")}


def test_a_blob_that_cannot_be_looked_at_fails_no_note(
    put: Put, keep: Keep, blobs: BlobStore, blob: Make, caplog: pytest.LogCaptureFixture
) -> None:
    known, broken = put("known"), blob("broken")
    blobs.path(broken.sha256).parent.mkdir(parents=True, exist_ok=True)
    blobs.path(broken.sha256).symlink_to(blobs.path(broken.sha256))  # ELOOP

    keep().note(hits=[known.sha256, broken.sha256])

    assert "use is not noted" in caplog.text
