"""Part sizes, and how many connections a link needs."""

import pytest

from comfyfarm.cache.transfer.pace import FEW, MANY, MOST, Pace, Sample, part_bytes

MIB = 1 << 20


@pytest.mark.parametrize(
    ("size", "mebibytes"),
    [(1, 1), (64 * MIB, 1), (64 * MIB + 1, 2), (256 * MIB, 4), (1 << 30, 8), (1 << 40, 8)],
)
def test_a_file_has_about_64_parts_of_1_to_8_mib(size: int, mebibytes: int) -> None:
    assert part_bytes(size) == mebibytes * MIB


class _Link:
    """Gives each connection this rate, all together no more than that; pushes a pace through time."""

    def __init__(self, each: float, together: float = 1e12) -> None:
        self.each, self.together = each, together
        self.now = self.total = self.receiving = 0.0

    def sample(self) -> Sample:
        return Sample(self.now, int(self.total), self.receiving)

    def run(self, pace: Pace, seconds: float) -> int:
        for _ in range(round(seconds / 0.05)):
            self.now += 0.05
            self.total += 0.05 * min(self.each * pace.wanted, self.together)
            self.receiving += 0.05 * pace.wanted
            pace.look(self.sample())
        return pace.wanted


def _begun(link: _Link, *, round_trip_s: float = 0.001, fixed: int | None = None) -> Pace:
    pace = Pace(fixed=fixed)
    assert pace.wanted == 1
    pace.begin(round_trip_s, link.sample())
    return pace


def test_a_fat_link_gets_a_few_connections_for_good() -> None:
    link = _Link(each=400e6)
    pace = _begun(link)

    assert [link.run(pace, 0.2), link.run(pace, 10)] == [FEW, FEW]


def test_a_far_server_gets_many_at_once_and_most_while_each_is_throttled() -> None:
    link = _Link(each=5e6)
    pace = _begun(link, round_trip_s=0.04)

    assert pace.wanted == MANY
    assert link.run(pace, 0.2) == MOST
    assert link.run(pace, 10) == MOST


def test_a_throttled_link_nearby_gets_many_and_then_most() -> None:
    link = _Link(each=10e6)
    pace = _begun(link)

    assert link.run(pace, 0.1) == MANY
    assert link.run(pace, 0.2) == MOST


def test_more_connections_that_do_not_pay_are_taken_back() -> None:
    link = _Link(each=10e6, together=160e6)
    pace = _begun(link, round_trip_s=0.04)

    assert link.run(pace, 0.3) == MOST
    assert link.run(pace, 2) == MANY
    assert link.run(pace, 20) == MANY


def test_a_middling_link_grows_while_it_pays() -> None:
    link = _Link(each=60e6, together=500e6)
    pace = _begun(link)

    assert link.run(pace, 1.2) == 2 * FEW
    assert link.run(pace, 10) in {2 * FEW, MANY}


def test_a_fixed_number_stays() -> None:
    link = _Link(each=1e6)
    pace = _begun(link, round_trip_s=0.04, fixed=5)

    assert [pace.wanted, link.run(pace, 5)] == [5, 5]


def test_one_complaint_changes_nothing_and_repeated_ones_halve() -> None:
    link = _Link(each=5e6)
    pace = _begun(link, fixed=16)

    pace.complain(1.0)
    assert pace.wanted == 16
    for now in (1.1, 1.15, 1.2):
        pace.complain(now)
    assert pace.wanted == 8
    pace.complain(2.0)
    assert pace.wanted == 4


def test_after_a_while_without_complaint_one_more_is_tried_at_a_time() -> None:
    link = _Link(each=5e6)
    pace = _begun(link, fixed=16)
    for now in (0.1, 0.2):
        pace.complain(now)

    assert [link.run(pace, 4), link.run(pace, 2), link.run(pace, 5), link.run(pace, 60)] == [8, 9, 10, 16]


def test_complaints_never_leave_a_file_without_a_connection() -> None:
    pace = _begun(_Link(each=1e6), fixed=2)
    for now in range(1, 9):
        pace.complain(float(now))

    assert pace.wanted == 1
