"""How commands end: errors, signals."""

import asyncio
import os
import signal
import subprocess
import sys

import pytest

from comfyfarm.cli.edge import ends_with_exit_code, run_in_order, runs_to_its_end
from comfyfarm.clock import SystemClock
from comfyfarm.errors import ControlUnavailable, FarmError, NamesMissing, StoreError
from comfyfarm.farm.stopping import Stop


def ended_by(error: Exception) -> object:
    """The exit code of a command that raises it."""

    @ends_with_exit_code
    def run() -> None:
        raise error

    with pytest.raises(SystemExit) as ended:
        run()
    return ended.value.code


@pytest.mark.parametrize(
    ("error", "code"),
    [(NamesMissing("m:", ["a", "b"]), 1), (ControlUnavailable("c"), 2), (StoreError("s"), 3)],
)
def test_an_error_of_ours_ends_the_command_with_its_message(
    capsys: pytest.CaptureFixture[str], error: FarmError, code: int
) -> None:
    ended = ended_by(error)

    out, err = capsys.readouterr()
    assert (ended, out) == (code, "")
    assert err == f"comfyfarm: {error}\n"


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (NotADirectoryError(20, "Not a directory", "/srv/x"), 2, "/srv/x: Not a directory"),
        (PermissionError(13, "Permission denied", "http://u:p/w@h"), 2, "http://***@h: Permission denied"),
        (OSError(30, "Read-only file system"), 2, "Read-only file system"),
        (OSError("odd"), 2, "odd"),
        (ConnectionResetError(104, "Connection reset by peer"), 3, "Connection reset by peer"),
        (TimeoutError(), 3, "TimeoutError"),
        (UnicodeEncodeError("utf-8", "hunter2", 0, 1, "no"), 2, "a name or value holds signs that are no"),
    ],
)
def test_an_error_of_the_machine_is_one_line(
    capsys: pytest.CaptureFixture[str], error: Exception, code: int, said: str
) -> None:
    ended = ended_by(error)

    out, err = capsys.readouterr()
    assert (ended, out, err.count("\n")) == (code, "", 1)
    assert err.startswith(f"comfyfarm: {said}")
    assert "hunter2" not in err


def test_a_reader_that_went_away_is_clicks_business() -> None:
    @ends_with_exit_code
    def run() -> None:
        raise BrokenPipeError(32, "Broken pipe")

    with pytest.raises(BrokenPipeError):
        run()


def test_an_error_of_nobody_is_not_hidden() -> None:
    @ends_with_exit_code
    def run() -> None:
        raise KeyError("a bug")

    with pytest.raises(KeyError):
        run()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_lets_the_work_tidy_up(number: signal.Signals, capsys: pytest.CaptureFixture[str]) -> None:
    tidied: list[str] = []

    async def work() -> None:
        os.kill(os.getpid(), number)
        try:
            await SystemClock().sleep(30)
        finally:
            await SystemClock().sleep(0.01)
            tidied.append("up")

    assert asyncio.run(runs_to_its_end(work(), Stop())) is False
    assert tidied == ["up"]
    assert "the same call goes on" in capsys.readouterr().err


def test_two_signals_at_once_are_one_wish() -> None:
    tidied: list[str] = []

    async def work() -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGTERM)
        try:
            await SystemClock().sleep(30)
        finally:
            os.kill(os.getpid(), signal.SIGINT)
            await SystemClock().sleep(0.2)
            tidied.append("up")

    assert asyncio.run(runs_to_its_end(work(), Stop())) is False
    assert tidied == ["up"]


def test_a_later_signal_ends_the_tidying_up_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("comfyfarm.farm.stopping._SAME_SIGNAL_S", -1.0)  # any other signal is a later one
    begun = SystemClock().monotonic()

    async def work() -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        try:
            await SystemClock().sleep(30)
        finally:
            os.kill(os.getpid(), signal.SIGTERM)
            await SystemClock().sleep(30)

    assert asyncio.run(runs_to_its_end(work(), Stop())) is False
    assert SystemClock().monotonic() - begun < 20


def test_work_that_ends_by_itself_says_so_and_leaves_the_signals_alone() -> None:
    before = signal.getsignal(signal.SIGTERM)

    async def work() -> None:
        await SystemClock().sleep(0)

    async def fails() -> None:
        raise StoreError("full")

    assert asyncio.run(runs_to_its_end(work(), Stop())) is True
    with pytest.raises(StoreError):
        asyncio.run(runs_to_its_end(fails(), Stop()))
    assert signal.getsignal(signal.SIGTERM) == before


def test_a_sigterm_while_render_is_being_loaded_ends_it_in_order() -> None:
    code = (
        "import os, signal, sys, time\n"
        "from comfyfarm import cli\n"
        "def load():\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n"
        "    time.sleep(20)\n"
        "sys.argv, cli.main = ['comfyfarm', 'render'], load\n"
        "cli.run()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], timeout=30, capture_output=True, text=True)

    assert (done.returncode, done.stderr) == (0, "")


def test_sigterm_lets_work_put_itself_in_order(capsys: pytest.CaptureFixture[str]) -> None:
    ended: list[str] = []

    async def work() -> None:
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            await asyncio.Event().wait()
        finally:
            os.kill(os.getpid(), signal.SIGTERM)  # a second one is in nobody's way
            await asyncio.to_thread(ended.append, "in order")

    with pytest.raises(SystemExit) as caught:
        run_in_order(work())

    assert (caught.value.code, ended) == (143, ["in order"])
    assert "the same call goes on" in capsys.readouterr().err
