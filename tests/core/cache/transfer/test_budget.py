"""Connections of all files together."""

from comfyfarm.cache.transfer.budget import Budget, Share


def _take(share: Share, wanted: int) -> int:
    share.wanted = wanted
    while share.held < wanted and share.take():
        pass
    return share.held


def test_one_file_may_have_all_of_it() -> None:
    with Budget(8).join() as share:
        assert _take(share, 99) == 8


def test_the_earlier_file_goes_first() -> None:
    budget = Budget(8)
    with budget.join() as first, budget.join() as second:
        assert [_take(first, 8), _take(second, 8)] == [7, 1]
        first.wanted = second.wanted = 8
        first.give()
        assert second.take()  # two are kept for each
        first.give()
        assert not second.take()  # the first one wants it
        assert first.take()


def test_no_file_goes_without() -> None:
    budget = Budget(8)
    with budget.join() as first, budget.join() as second, budget.join() as third:
        for each in (first, second, third):
            _take(each, 8)
        while any(each.must_yield() for each in (first, second)):
            for each in (first, second):
                if each.must_yield():
                    each.give()
                    third.take()
        assert [each.held for each in (first, second, third)] == [4, 2, 2]


def test_what_the_earlier_files_do_not_want_is_for_the_later_ones() -> None:
    budget = Budget(8)
    with budget.join() as first, budget.join() as second:
        assert [_take(first, 3), _take(second, 8)] == [3, 5]


def test_a_file_that_has_all_yields_to_one_that_comes() -> None:
    budget = Budget(8)
    with budget.join() as first:
        _take(first, 8)
        assert not first.must_yield()
        with budget.join() as second:
            second.wanted = 8
            while first.must_yield():
                first.give()
                second.take()
            assert (first.held, second.held) == (6, 2)
            while second.held:
                second.give()
        assert _take(first, 8) == 8


def test_the_total_is_never_exceeded() -> None:
    budget = Budget(4)
    with budget.join() as a, budget.join() as b, budget.join() as c, budget.join() as d, budget.join() as e:
        assert sum(_take(each, 9) for each in (a, b, c, d, e)) <= 4
