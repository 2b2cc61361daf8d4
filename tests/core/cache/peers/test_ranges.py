"""Which bytes a request means."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from comfyfarm.cache.peers.ranges import is_match, wanted_bytes


@pytest.mark.parametrize(
    ("header", "wanted"),
    [
        ("bytes=0-0", range(1)),
        ("bytes=10-19", range(10, 20)),
        ("bytes=90-", range(90, 100)),
        ("bytes=90-1000", range(90, 100)),
        ("bytes=-7", range(93, 100)),
        ("bytes=-1000", range(100)),
        (" BYTES = 1 - 2 ", range(1, 3)),
    ],
)
def test_a_range_is_cut_to_the_file(header: str, wanted: range) -> None:
    assert wanted_bytes(header, 100) == wanted


@pytest.mark.parametrize("header", ["bytes=100-", "bytes=100-200", "bytes=-0"])
def test_a_range_outside_the_file_is_empty(header: str) -> None:
    found = wanted_bytes(header, 100)

    assert found is not None
    assert len(found) == 0


@pytest.mark.parametrize(
    "header",
    [None, "", "bytes=", "bytes=-", "bytes=5-4", "bytes=0-1,3-4", "lines=0-1", "bytes=a-b",
     "bytes=\u0661-\u0662", f"bytes={'9' * 30}-"],
)  # fmt: skip
def test_what_is_no_single_range_means_the_whole_file(header: str | None) -> None:
    assert wanted_bytes(header, 100) is None


@given(st.integers(0, 1000), st.integers(0, 1000), st.integers(0, 500))
def test_no_range_leaves_the_file(first: int, last: int, size: int) -> None:
    for header in (f"bytes={first}-{last}", f"bytes={first}-", f"bytes=-{last}"):
        found = wanted_bytes(header, size)
        assert found is None or not found or (found.start >= 0 and found.stop <= size)


@pytest.mark.parametrize("header", [None, "*", '"a"', '"b", "a"'])
def test_if_match_lets_pass_what_names_our_tag(header: str | None) -> None:
    assert is_match(header, '"a"')


@pytest.mark.parametrize("header", ["", '"b"', "a", 'W/"a"'])
def test_if_match_stops_what_does_not(header: str) -> None:
    assert not is_match(header, '"a"')
