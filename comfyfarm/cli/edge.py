"""What all commands share: how errors end them, and where words go."""

import asyncio
import functools
import logging
import sys
from collections.abc import Callable, Coroutine
from typing import Any, NoReturn, TypeVar

import click

from comfyfarm.errors import FarmError
from comfyfarm.farm.stopping import Stop, run_until_stopped

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


async def runs_to_its_end(work: Coroutine[Any, Any, None], stop: Stop) -> bool:
    """Run it; SIGINT or SIGTERM stops it in order, another one at once. Whether neither came."""
    try:
        await run_until_stopped(work, stop)
    except asyncio.CancelledError:
        say("comfyfarm: interrupted; the same call goes on where it was")
        return False
    if stop.is_asked:
        say("comfyfarm: stopped; the same call goes on where it was")
    return not stop.is_asked


def log_to_stderr(*, verbose: bool) -> None:
    """Show the core's warnings, or all that it says."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(levelname)s %(message)s"))
    # The handler's own level: others may want to hear more of the logger than is shown here.
    handler.setLevel(logging.INFO if verbose else logging.WARNING)
    logger = logging.getLogger("comfyfarm")
    logger.handlers = [handler]
    logger.setLevel(handler.level)
