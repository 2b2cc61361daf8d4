"""What all commands share: how errors end them, and where words go."""

import asyncio
import functools
import logging
import signal
import sys
from collections.abc import Callable, Coroutine
from typing import Any, NoReturn, TypeVar

import click

from comfyfarm.errors import FarmError

Function = TypeVar("Function", bound=Callable[..., Any])


def say(line: str) -> None:
    """Words for people: always on stderr, so that stdout is data only."""
    click.echo(line, err=True)


def ends_with_exit_code(function: Function) -> Function:
    """Have a `FarmError` end the command with its message and its exit code."""

    @functools.wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except FarmError as exc:
            fail(exc)

    return wrapped  # type: ignore[return-value]


def fail(error: FarmError) -> NoReturn:
    """Print the error and exit with its code."""
    say(f"comfyfarm: {error}")
    sys.exit(error.exit_code)


_SAME_SIGNAL_S = 3.0


async def runs_to_its_end(work: Coroutine[Any, Any, None]) -> bool:
    """Run it; SIGINT or SIGTERM cancels it, later ones also its tidying up. Whether neither came.

    What sends one signal often sends it twice at once (a terminal, `timeout`): that is one wish.
    Under `asyncio.run` alone, SIGTERM would end the process at once, and leave prompts running.
    """
    task = asyncio.ensure_future(work)
    loop = asyncio.get_running_loop()
    first: float | None = None

    def on_signal() -> None:
        nonlocal first
        if first is None or loop.time() - first > _SAME_SIGNAL_S:
            first = loop.time() if first is None else first
            task.cancel()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, on_signal)
    try:
        await task
    except asyncio.CancelledError:
        say("comfyfarm: interrupted; the same call goes on where it was")
        return False
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)
    return True


def log_to_stderr(*, verbose: bool) -> None:
    """Show the core's warnings, or all that it says."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(levelname)s %(message)s"))
    logger = logging.getLogger("comfyfarm")
    logger.handlers = [handler]
    logger.setLevel(logging.INFO if verbose else logging.WARNING)
