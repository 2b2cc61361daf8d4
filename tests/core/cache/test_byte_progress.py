"""How far the model files are, as the command and the run's log hear of it."""

import json
import os

import pytest

from comfyfarm.cache.byte_progress import PIPE, ByteProgress, FileMeter
from comfyfarm.clock import SystemClock


class Still(SystemClock):
    """Goes on only when it is told to."""

    at_s = 100.0

    def monotonic(self) -> float:
        return self.at_s


def test_the_command_is_told_now_and_then_and_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    monkeypatch.setenv(PIPE, str(writing))
    clock = Still()
    progress = ByteProgress(100, clock=clock)

    for count in (10, 10, 10):
        progress.add(count)
    clock.at_s += 1
    progress.add(-20)
    progress.add(90)
    os.close(writing)

    with os.fdopen(reading) as lines:
        told = [json.loads(line) for line in lines]
    assert [one["done"] for one in told] == [10, 10, 100]
    assert {one["total"] for one in told} == {100}


def test_the_files_under_way_are_told_of_in_one_write(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    monkeypatch.setenv(PIPE, str(writing))
    clock = Still()
    progress = ByteProgress(10**15, clock=clock)
    progress.add(100, "whole", 100)
    for number in range(20):
        progress.add(7, f"{number:03}" + "\N{PILE OF POO}" * 500, 10**12)
    clock.at_s += 1
    progress.add(-1, "back", 100)
    os.close(writing)

    with os.fdopen(reading) as lines:
        *_, last = lines
    files = json.loads(last)["files"]
    assert len(last) < 4096, "less than a pipe takes at once"
    assert len(files) == 5
    assert all((done, size) == (7, 10**12) for _, done, size in files)


def test_nobody_who_reads_holds_nothing_up(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    monkeypatch.setenv(PIPE, str(writing))
    progress = ByteProgress(1, clock=Still())
    for _ in range(10_000):  # more than a pipe holds
        progress.add(1)
    os.close(reading)
    progress.add(1)
    os.close(writing)
    monkeypatch.delenv(PIPE)

    ByteProgress(1).add(1)


def test_a_file_is_told_of_while_it_comes_and_at_its_end() -> None:
    clock, said = Still(), list[str]()
    meter = FileMeter("vae/a on here", 8_000_000, said.append, clock=clock)

    for _ in range(4):
        clock.at_s += 5
        meter.add(2_000_000)
    meter.end()

    assert said == [
        "vae/a on here: 4.0 MB of 8.0 MB, 0.4 MB/s",
        "vae/a on here: 8.0 MB of 8.0 MB, 0.4 MB/s",
        "vae/a on here: 8.0 MB in 20.0 s, 0.4 MB/s",
    ]


def test_a_file_that_was_here_says_so() -> None:
    said: list[str] = []
    FileMeter("vae/a on here", 5_000_000, said.append).end()

    assert said == ["vae/a on here: was here already, 5.0 MB"]
