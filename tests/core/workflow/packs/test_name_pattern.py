"""Patterns of class maps: real ones are taken, those that could take long are not."""

import json
import sys
import time
import zipfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from comfyfarm.lock.node_map import read_node_map
from comfyfarm.workflow.packs.name_pattern import LONGEST_CLASS, bounded_pattern


@pytest.mark.parametrize(
    "raw",
    [
        "^(a+)+$",
        "(a|a)*b",
        "(a|ab)(c|bcd)" * 12 + "!",
        "(.*a){3}",
        ".*.*.*.*.*.*x",
        "a?" * 60 + "a" * 60,
        "(a)\\1",
        "(?=a+)b",
        "(?<=a)b",
        "(",
        "a{99999999999}",
        "a" * 301,
        "",
    ],
)
def test_a_pattern_that_could_take_long_or_is_none_is_left_out(raw: str) -> None:
    assert bounded_pattern(raw) is None


@pytest.mark.parametrize(
    ("raw", "fits"),
    [
        ("^DF_", "DF_x"),
        (" \\(lab\\)$", "x (lab)"),
        ("(Gallery-dl|Yt-dlp|Web.*Scraper)", "a WebxScraper"),
        ("A.*B|B.*A", "BxA"),
        ("[A-Z]+x?$", "AAx"),
        ("(?i:abc)", "xABC"),
        ("\\d{2,3}", "x12"),
    ],
)
def test_plain_patterns_are_taken(raw: str, fits: str) -> None:
    pattern = bounded_pattern(raw)

    assert pattern is not None
    assert pattern.search(fits)


def test_all_patterns_of_the_real_class_map_are_taken() -> None:
    wheel = Path(sys.prefix) / "data" / "comfyui_manager-4.3-py3-none-any.whl"
    with zipfile.ZipFile(wheel) as archive:
        rows = json.loads(archive.read("comfyui_manager/extension-node-map.json")).values()
    patterns = [row[1]["nodename_pattern"] for row in rows if "nodename_pattern" in row[1]]

    assert len(patterns) > 20
    assert [raw for raw in patterns if bounded_pattern(raw) is None] == []


def test_a_map_with_a_slow_pattern_answers_at_once(caplog: pytest.LogCaptureFixture) -> None:
    raw = {"https://github.com/a/b": [["X"], {"nodename_pattern": "^(a+)+$"}]}
    index = read_node_map(json.dumps(raw).encode(), name="map.json")

    assert index.claimants("a" * 40 + "!") == ()
    assert "could take long" in caplog.text


PARTS = ["a", "b", ".", "[ab]", "a?", "a+", ".*", "b{2,9}", "(a|ab)", "(a|b|ba)", "(?:.*)", "|", "^", "$"]


@given(st.lists(st.sampled_from(PARTS), max_size=60).map("".join), st.text("ab", max_size=LONGEST_CLASS))
def test_what_is_taken_answers_at_once(raw: str, name: str) -> None:
    pattern = bounded_pattern(raw)
    if pattern is None:
        return
    start = time.perf_counter()
    pattern.search(name)

    assert time.perf_counter() - start < 1
