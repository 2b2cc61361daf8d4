"""What all commands share: how errors end them, and where words go."""

import functools
import logging
import signal
import sys
import threading
from collections.abc import Callable, Coroutine, Iterable
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import click

from comfyfarm.addresses import mask
from comfyfarm.errors import FarmError, TryLater, UsageError

if TYPE_CHECKING:  # `--help` loads no pydantic
    from comfyfarm.farm.stopping import Stop
    from comfyfarm.workflow.findings import Finding

logger = logging.getLogger(__name__)

Function = TypeVar("Function", bound=Callable[..., Any])
Value = TypeVar("Value")


def say(line: str) -> None:
    """Words for people: always on stderr, so that stdout is data only."""
    click.echo(line, err=True)


def say_findings(findings: "Iterable[Finding]", *, file: str = "") -> None:
    """Warnings and errors, one line each, with their code; what is only to know is left to `--json`.

    `file`: what they are about, where the command itself does not say it.
    """
    place = f"{mask(file)}: " if file else ""
    for finding in findings:
        if finding.severity != "info":
            say(f"{finding.severity}: {finding.code}: {place}{finding}")


def ends_with_exit_code(function: Function) -> Function:
    """Have an error end the command with one message and its exit code.

    Besides ours those of the machine: a folder that cannot be written, a name that is no UTF-8. With
    the log's level at INFO their traceback is shown.
    """

    @functools.wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except FarmError as exc:
            fail(exc)
        except BrokenPipeError:  # whoever read our words has gone: click's business
            raise
        except (OSError, UnicodeError) as exc:
            logger.info("what ended the command:", exc_info=exc)
            fail(told(exc))

    return wrapped  # type: ignore[return-value]


def told(error: OSError | UnicodeError) -> FarmError:
    """What the machine refused, as one of our errors."""
    if isinstance(error, UnicodeError):  # its text would quote what may be secret
        return UsageError("a name or value holds signs that are no valid UTF-8")
    reason = error.strerror or str(error) or type(error).__name__
    text = f"{mask(str(error.filename))}: {reason}" if error.filename is not None else reason
    return TryLater(text) if isinstance(error, ConnectionError | TimeoutError) else UsageError(text)


def fail(error: FarmError) -> NoReturn:
    """Print the error and exit with its code."""
    say(f"comfyfarm: {error}")
    sys.exit(error.exit_code)


async def runs_to_its_end(work: Coroutine[Any, Any, None], stop: "Stop") -> bool:
    """Run it; SIGINT or SIGTERM stops it in order, another one at once. Whether neither came."""
    # Loading these takes 0.03 s, and commands that only read never come here.
    import asyncio

    from comfyfarm.farm.stopping import run_until_stopped

    try:
        await run_until_stopped(work, stop)
    except asyncio.CancelledError:
        say("comfyfarm: interrupted; the same call goes on where it was")
        return False
    if stop.is_asked:
        say("comfyfarm: stopped; the same call goes on where it was")
    return not stop.is_asked


def run_in_order(work: Coroutine[Any, Any, Value]) -> Value:
    """`asyncio.run`, in which SIGTERM cancels as Ctrl-C does, so that what has come is kept.

    Raises:
        SystemExit: SIGTERM came; status 143.
    """
    import asyncio

    was_terminated = False

    async def watched() -> Value:
        nonlocal was_terminated
        loop, task = asyncio.get_running_loop(), asyncio.current_task()

        def cancel() -> None:
            nonlocal was_terminated
            if task is not None and not was_terminated:  # a second one does not stop what puts in order
                was_terminated = True
                task.cancel()

        if threading.current_thread() is threading.main_thread():
            loop.add_signal_handler(signal.SIGTERM, cancel)
        return await work

    try:
        return asyncio.run(watched())
    except asyncio.CancelledError:
        if not was_terminated:
            raise
    say("comfyfarm: stopped; the same call goes on where it was")
    sys.exit(128 + signal.SIGTERM)


def log_to_stderr(*, verbose: bool) -> None:
    """Show the core's warnings, or all that it says."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(levelname)s %(message)s"))
    # The handler's own level: others may want to hear more of the logger than is shown here.
    handler.setLevel(logging.INFO if verbose else logging.WARNING)
    logger = logging.getLogger("comfyfarm")
    logger.handlers = [handler]
    logger.setLevel(handler.level)
