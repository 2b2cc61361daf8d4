"""`--ledger URL` and `--local`: work on the ledger that earlier renders wrote."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import click

from comfyfarm.cli.edge import say
from comfyfarm.farm.ledgers import known_ledger
from comfyfarm.ledger.ledger import Ledger, open_ledger
from comfyfarm.settings import read_settings

Function = TypeVar("Function", bound=Callable[..., Any])
T = TypeVar("T")


def ledger_options(function: Function) -> Function:
    """Both options, as parameters `ledger` and `local`."""
    function = click.option("--local", is_flag=True, help="The ledger of `render --local`.")(function)
    return click.option("--ledger", metavar="URL", help="sqlite:///PATH or postgresql://…")(function)


def with_ledger(work: Callable[[Ledger], Awaitable[T]], ledger: str | None, *, local: bool) -> T:
    """Run `work` on the ledger that the options mean.

    Raises:
        UsageError: nothing has been rendered here yet.
    """

    async def run(url: str) -> T:
        async with await open_ledger(url) as opened:
            return await work(opened)

    with known_ledger(read_settings(), ledger, local=local, on_line=say) as url:
        return asyncio.run(run(url.get_secret_value()))
