"""Bars, on a real terminal."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from comfyfarm.cli.progress import hydration_bars, render_bars
from comfyfarm.clock import SystemClock, pause
from comfyfarm.lock.lockfile import LockedModel

PROGRAM = str(Path(sys.executable).with_name("comfyfarm"))


class Terminal:
    """A pseudo-terminal, and what has been written to it, without colours."""

    def __init__(self) -> None:
        self._ours, self.theirs = os.openpty()
        os.set_blocking(self._ours, False)
        self.text = ""

    def read(self) -> str:
        """Everything so far."""
        try:
            while data := os.read(self._ours, 1 << 16):
                self.text += re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", data.decode())
        except OSError:  # nothing more, for now or for ever
            pass
        return self.text

    def shows(self, *words: str, timeout_s: float = 10.0) -> bool:
        """Whether all of the words are to be seen in time."""
        end = SystemClock().monotonic() + timeout_s
        while not all(word in self.read() for word in words):
            if SystemClock().monotonic() > end:
                return False
            pause(0.05)
        return True

    def close(self) -> None:
        os.close(self._ours)
        os.close(self.theirs)


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[Terminal]:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    made = Terminal()
    yield made
    made.close()


def test_bytes_and_jobs_of_a_render_have_a_bar_each(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    with os.fdopen(os.dup(terminal.theirs), "w") as stderr:
        monkeypatch.setattr("sys.stderr", stderr)
        with render_bars("portraits[1]") as bars:
            with bars.bytes_bar(40_000_000) as advance:
                advance(10_000_000)
                bars.show_jobs({"pending": 3, "dead": 1})
                assert terminal.shows("models", "10.0/40.0 MB", "portraits[1]", "1/4", "1 dead"), (
                    terminal.text
                )
            terminal.text = ""
            bars.show_jobs({"pending": 1, "succeeded": 2, "dead": 1})
            assert terminal.shows("3/4"), terminal.text

    assert "40.0 MB" not in terminal.text.rpartition("3/4")[2]


def test_a_render_shows_the_files_under_way(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    with os.fdopen(os.dup(terminal.theirs), "w") as stderr:
        monkeypatch.setattr("sys.stderr", stderr)
        with render_bars("batch") as bars:
            bars.show_bytes(5_000_000, 40_000_000, [("a.pth", 5_000_000, 20_000_000)])
            assert terminal.shows("models", "5.0/40.0 MB", "a.pth", "5.0/20.0 MB"), terminal.text
            terminal.text = ""
            bars.show_bytes(21_000_000, 40_000_000, [("b.pth", 1_000_000, 20_000_000)])
            assert terminal.shows("21.0/40.0 MB", "b.pth", "1.0/20.0 MB"), terminal.text
            last = terminal.text.rpartition("21.0/40.0 MB")[2]

    assert "a.pth" not in last


def model(path: str, sha256: str, megabytes: int) -> LockedModel:
    return LockedModel(folder="vae", path=path, sha256=sha256 * 64, size=megabytes * 1_000_000)


def test_each_model_file_under_way_has_a_bar_and_all_have_one(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second, third = model("a.pth", "a", 30), model("x" * 90 + "/b.pth", "b", 40), model("c", "c", 30)
    with os.fdopen(os.dup(terminal.theirs), "w") as stderr:
        monkeypatch.setattr("sys.stderr", stderr)
        with hydration_bars([first, second, third]) as on_bytes:
            on_bytes(first, 10_000_000)
            on_bytes(second, 1_000_000)
            assert terminal.shows("models", "11.0/100.0 MB", "a.pth", "10.0/30.0 MB", "x/b.pth"), (
                terminal.text
            )
            assert "x" * 40 not in terminal.text
            on_bytes(first, 20_000_000)
            terminal.text = ""
            on_bytes(second, -1_000_000)
            assert terminal.shows("30.0/100.0 MB", "0.0/40.0 MB"), terminal.text
            last = terminal.text.rpartition("30.0/100.0 MB")[2]

    assert "a.pth" not in last, "a file that is whole has no bar any more"
    assert "c " not in last, "nor has one that did not begin"


def test_bars_of_models_say_nothing_without_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with hydration_bars([model("a", "a", 1)]) as on_bytes:
        on_bytes(model("a", "a", 1), 1_000_000)

    assert capsys.readouterr() == ("", "")


def test_a_mirror_shows_how_far_it_is(terminal: Terminal, tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_bytes(name.encode() * 2_000_000)
    call: list[str | Path] = [PROGRAM, "mirror", "add", tmp_path / "a", tmp_path / "b"]

    done = subprocess.run(
        [*call, "--mirror", tmp_path / "mirror"], stdout=subprocess.PIPE, stderr=terminal.theirs, timeout=50
    )

    assert done.returncode == 0
    assert len(done.stdout.splitlines()) == 2
    assert terminal.shows("mirror", "8.0/8.0 MB"), terminal.text


def test_without_a_terminal_there_is_no_bar(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"a")
    call: list[str | Path] = [PROGRAM, "mirror", "add", tmp_path / "a", "--mirror", tmp_path / "mirror"]

    done = subprocess.run(call, capture_output=True, timeout=50)

    assert (done.returncode, done.stderr) == (0, b"")
