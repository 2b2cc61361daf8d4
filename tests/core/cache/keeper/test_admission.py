"""What fits, what has to leave for it, and the words of a refusal."""

from dataclasses import replace
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from comfyfarm.cache.keeper.admission import (
    Admission,
    Blob,
    Bounds,
    CacheState,
    Cause,
    Refusal,
    admit,
    evictable,
    missing_of,
    why_it_stays,
)

EMPTY = CacheState(blobs={}, bounds=Bounds(None, 0), disk_free_bytes=10_000)
FULL = replace(
    EMPTY,
    blobs={sha: Blob(100, float(n), f"vae/{sha}.pt") for n, sha in enumerate("abcd")},
    bounds=Bounds(400, 0),
)


def admitted(wanted: dict[str, int], state: CacheState) -> Admission:
    answer = admit(wanted, state)
    assert isinstance(answer, Admission), answer
    return answer


def refused(wanted: dict[str, int], state: CacheState) -> str:
    answer = admit(wanted, state)
    assert isinstance(answer, Refusal), answer
    return answer.reason


def test_nothing_leaves_while_there_is_room() -> None:
    assert admitted({"a": 100, "n": 9000}, replace(FULL, bounds=Bounds(None, 0))) == (9000, (), (), (), 0)
    assert admitted({"n": 600}, replace(FULL, bounds=Bounds(1000, 0))).evict == ()


def test_the_longest_unused_leave_first_and_no_more_than_has_to() -> None:
    assert admitted({"n": 100}, FULL).evict == ("a",)
    assert admitted({"n": 101}, FULL).evict == ("a", "b")
    assert admitted({"n": 100, "a": 100}, FULL).evict == ("b",)
    assert admitted({"n": 400}, FULL).evict == ("a", "b", "c", "d")


def test_a_file_of_another_size_has_to_come_anew() -> None:
    assert missing_of({"a": 100, "b": 99, "n": 1}, FULL) == {"b": 99, "n": 1}
    assert admitted({"b": 99}, FULL).evict == ("a",)


def test_what_is_pinned_in_use_or_held_by_a_strange_hard_link_stays() -> None:
    held = {**FULL.blobs, "c": FULL.blobs["c"]._replace(is_freeable=False)}
    state = replace(FULL, blobs=held, pins={"a": ("by hand",)}, in_use={"b": ("job 7",)})

    assert admitted({"n": 100}, state).evict == ("d",)
    assert evictable(state, keep={}) == ["d"]
    assert [stay and stay.cause for stay in map(partial(why_it_stays, state=state), "abc")] == [
        Cause.PINNED,
        Cause.IN_USE,
        Cause.SHARED,
    ]
    assert (why_it_stays("d", state), why_it_stays("c", state, forced=True)) == (None, None)


def test_nothing_leaves_when_everything_is_here_however_full_it_is() -> None:
    assert admitted({"a": 100}, replace(FULL, bounds=Bounds(1, 1 << 40), disk_free_bytes=0)).evict == ()


def test_what_was_promised_to_others_is_no_room_but_the_same_file_is_promised_once() -> None:
    promised = replace(EMPTY, bounds=Bounds(1000, 0), promised={"x": 600})

    assert "promised to other processes: 600 bytes" in refused({"n": 500}, promised)
    assert admitted({"n": 400}, promised).fetch_bytes == 400
    assert admitted({"x": 600, "n": 400}, promised).fetch_bytes == 1000


def test_bytes_on_their_way_count_once_on_the_disk_and_in_the_quota() -> None:
    half = replace(EMPTY, bounds=Bounds(1000, 0), partial={"n": 600}, disk_free_bytes=400)

    assert admitted({"n": 1000}, half).fetch_bytes == 1000  # 600 of it have their room already
    refused({"n": 1000}, replace(half, disk_free_bytes=399))
    refused({"n": 1000}, replace(half, partial={"n": 600, "x": 1}, moving=frozenset("x")))


def test_rests_and_what_is_quarantined_leave_before_any_blob() -> None:
    state = replace(FULL, bounds=Bounds(700, 0), partial={"x": 100, "y": 100}, quarantined={"q": 100})

    assert admitted({"n": 100}, state)[1:] == (("q",), (), (), 100)
    assert admitted({"n": 200}, state)[1:] == (("q",), ("x",), (), 200)
    assert admitted({"n": 400}, state)[1:] == (("q",), ("x", "y"), ("a",), 400)
    assert admitted({"n": 200, "x": 100}, state)[1:] == (("q",), ("y",), (), 200)
    moving = replace(state, moving=frozenset("x"))
    assert admitted({"n": 200}, moving)[1:] == (("q",), ("y",), (), 200)


def test_the_floor_of_the_disk_counts_as_the_quota_does() -> None:
    state = replace(FULL, bounds=Bounds(None, 50), disk_free_bytes=200)

    assert admitted({"n": 150}, state).evict == ()
    assert admitted({"n": 151}, state).evict == ("a",)
    assert admitted({"n": 550}, state).evict == ("a", "b", "c", "d")
    assert "to stay free on the disk: 50 bytes" in refused({"n": 551}, state)


def test_a_refusal_says_what_is_needed_what_there_is_who_holds_it_and_the_remedy() -> None:
    state = replace(FULL, pins={"a": ("by lock 123 (film.lock)",)}, in_use={"b": ("job 7",)})

    assert refused({"c": 100, "n": 300}, state).splitlines() == [
        "300 bytes have to be fetched, and the quota of the cache is 400 bytes; 200 bytes are missing",
        "  wanted: 400 bytes, of which 100 bytes are here",
        "  quota: 400 bytes, and with the files to fetch 700 bytes are used",
        "  can leave: 100 bytes",
        "  pinned: 100 bytes",
        "    vae/a.pt (100 bytes): by lock 123 (film.lock)",
        "  in use: 100 bytes",
        "    vae/b.pt (100 bytes): job 7",
        "  remedy: unpin files (comfyfarm cache unpin); or wait until the others are done; "
        "or raise the quota (COMFYFARM_CACHE_QUOTA_GB)",
    ]


def test_a_refusal_names_the_bound_that_is_short() -> None:
    small_disk = replace(FULL, bounds=Bounds(10_000, 50), disk_free_bytes=5)
    small_quota = replace(small_disk, bounds=Bounds(10, 0), disk_free_bytes=10_000)

    assert "the disk of this host has 5 bytes free" in refused({"n": 9000}, small_disk)
    assert "the quota of the cache is 10 bytes;" in refused({"n": 9000}, small_quota)


@pytest.mark.parametrize(
    ("state", "remedy"),
    [
        (replace(EMPTY, disk_free_bytes=5), "make room there, or give --cache on a larger disk"),
        (
            replace(EMPTY, bounds=Bounds(None, 9990)),
            "let less stay free (COMFYFARM_CACHE_FREE_GB); or",
        ),
        (replace(EMPTY, bounds=Bounds(5, 0)), "remedy: raise the quota (COMFYFARM_CACHE_QUOTA_GB)"),
    ],
)
def test_the_remedy_fits_what_is_short(state: CacheState, remedy: str) -> None:
    assert remedy in refused({"n": 20}, state)


def test_of_many_that_are_pinned_the_largest_are_named() -> None:
    blobs = {f"{n:02}": Blob(n + 1, 0.0, f"m{n}") for n in range(9)}
    state = replace(EMPTY, blobs=blobs, pins=dict.fromkeys(blobs, ("by hand",)), bounds=Bounds(45, 0))
    lines = refused({"n": 1}, state).splitlines()

    assert [line.split()[0] for line in lines if "by hand" in line] == ["m8", "m7", "m6", "m5", "m4"]
    assert "  and 4 more" in [line[2:] for line in lines]


SHAS = st.sampled_from("abcdefgh")
SIZES = st.integers(0, 50)
WORDS = st.just(("somebody",))


@st.composite
def scenes(draw: st.DrawFn) -> CacheState:
    blobs = draw(
        st.dictionaries(
            SHAS, st.builds(Blob, SIZES, st.integers(0, 5).map(float), st.just("m"), st.booleans())
        )
    )
    partial = draw(st.dictionaries(SHAS, SIZES))
    return CacheState(
        blobs=blobs,
        pins=draw(st.dictionaries(SHAS, WORDS)),
        in_use=draw(st.dictionaries(SHAS, WORDS)),
        promised=draw(st.dictionaries(SHAS, SIZES)),
        partial=partial,
        moving=draw(st.sets(st.sampled_from(sorted(partial)))) if partial else frozenset(),  # type: ignore[arg-type]
        quarantined=draw(st.dictionaries(SHAS, SIZES, max_size=2)),
        bounds=Bounds(draw(st.none() | st.integers(0, 300)), draw(st.integers(0, 100))),
        disk_free_bytes=draw(st.integers(0, 300)),
    )


def used_after(wanted: dict[str, int], state: CacheState, plan: Admission) -> tuple[int, int]:
    """Bytes in the cache and free on the disk, once all is here: counted anew, file by file."""
    missing = missing_of(wanted, state)
    used, free = 0, state.disk_free_bytes
    for sha, blob in state.blobs.items():
        used += 0 if sha in plan.evict else blob.size
        free += blob.size if sha in plan.evict else 0
    for name, size in state.quarantined.items():
        used += 0 if name in plan.drop_quarantined else size
        free += size if name in plan.drop_quarantined else 0
    for sha in {*missing, *state.promised, *state.partial}:
        there = state.partial.get(sha, 0)
        if sha in plan.drop_partial:
            free += there
            continue
        whole = max(missing.get(sha, 0), state.promised.get(sha, 0), there)
        used += whole
        free -= whole - there
    return used, free


@given(st.dictionaries(SHAS, SIZES), scenes())
def test_an_admission_keeps_every_promise(wanted: dict[str, int], state: CacheState) -> None:
    answer = admit(wanted, state)
    if isinstance(answer, Refusal):
        assert missing_of(wanted, state)
        return
    gone = set(answer.evict)
    assert not gone & {*wanted, *state.pins, *state.in_use}
    assert not set(answer.drop_partial) & {*state.moving, *missing_of(wanted, state), *state.promised}
    assert list(answer.evict) == evictable(state, keep=wanted)[: len(answer.evict)]
    if missing_of(wanted, state):
        used, free = used_after(wanted, state, answer)
        assert state.bounds.quota_bytes is None or used <= state.bounds.quota_bytes
        assert free >= state.bounds.free_bytes
    if answer.evict:  # one fewer would not do
        used, free = used_after(wanted, state, answer._replace(evict=answer.evict[:-1]))
        quota = state.bounds.quota_bytes
        assert free < state.bounds.free_bytes or (quota is not None and used > quota)


@given(st.dictionaries(SHAS, SIZES), scenes())
def test_a_refusal_is_true(wanted: dict[str, int], state: CacheState) -> None:
    answer = admit(wanted, state)
    if isinstance(answer, Admission):
        return
    idle = set(state.partial) - set(state.moving) - set(missing_of(wanted, state)) - set(state.promised)
    everything = Admission(0, tuple(state.quarantined), tuple(idle), tuple(evictable(state, keep=wanted)), 0)
    used, free = used_after(wanted, state, everything)
    quota = state.bounds.quota_bytes
    assert free < state.bounds.free_bytes or (quota is not None and used > quota)
