"""What is handed out, in which order, and how the end is shared."""

from comfyfarm.cache.transfer.stretches import Stretch, Stretches

MIB = 1 << 20


def _ends(stretch: Stretch | None) -> tuple[int, int] | None:
    return (stretch.at, stretch.end) if stretch else None


def test_what_is_missing_is_cut_at_multiples_of_the_part() -> None:
    stretches = Stretches([range(MIB, 5 * MIB), range(7 * MIB, 7 * MIB + 5)], 4 * MIB)

    assert [_ends(stretches.take(may_split=True)) for _ in range(4)] == [
        (MIB, 4 * MIB),
        (4 * MIB, 5 * MIB),
        (7 * MIB, 7 * MIB + 5),
        None,
    ]


def test_a_stretch_that_is_given_back_comes_next() -> None:
    stretches = Stretches([range(3 * MIB)], MIB)
    first = stretches.take(may_split=True)
    assert first is not None

    stretches.give_back(first)

    assert stretches.take(may_split=True) is first


def test_it_is_done_when_nothing_waits_and_nobody_is_at_anything() -> None:
    stretches = Stretches([range(MIB)], MIB)
    stretch = stretches.take(may_split=True)
    assert stretch is not None
    assert not stretches.is_done

    stretches.end(stretch)

    assert stretches.is_done


def test_a_slow_part_is_split_at_a_chunk_when_nothing_else_is_left() -> None:
    stretches = Stretches([range(3 * MIB + 9)], 4 * MIB)
    slow = stretches.take(may_split=True)
    assert slow is not None
    slow.rate = 1e6

    assert _ends(stretches.take(may_split=True)) == (2 * MIB, 3 * MIB + 9)
    assert _ends(slow) == (0, 2 * MIB)


def test_a_part_that_is_soon_done_or_has_one_chunk_left_is_not_split() -> None:
    stretches = Stretches([range(4 * MIB)], 4 * MIB)
    stretch = stretches.take(may_split=True)
    assert stretch is not None
    assert stretches.take(may_split=True) is None  # its rate is not known

    stretch.rate = 1e9
    assert stretches.take(may_split=True) is None
    stretch.rate, stretch.at = 1.0, 3 * MIB
    assert stretches.take(may_split=True) is None


def test_a_raced_part_is_handed_out_again_before_all_others_and_not_split() -> None:
    stretches = Stretches([range(8 * MIB)], 4 * MIB)
    slow = stretches.take(may_split=True)
    assert slow is not None
    slow.rate, slow.at = 1.0, MIB

    stretches.race(slow)

    assert _ends(stretches.take(may_split=True)) == (MIB, 4 * MIB)
    assert _ends(stretches.take(may_split=True)) == (4 * MIB, 8 * MIB)
    assert stretches.take(may_split=True) is None


def test_a_part_that_has_just_ended_is_not_raced() -> None:
    stretches = Stretches([range(MIB)], MIB)
    done = stretches.take()
    assert done is not None
    stretches.end(done)

    stretches.race(done)

    assert stretches.is_done


def test_no_more_threads_are_useful_than_there_are_chunks() -> None:
    stretches = Stretches([range(6 * MIB)], 4 * MIB)
    assert stretches.most_useful() == 2
    stretches.take(may_split=True)
    assert stretches.most_useful() == 5
