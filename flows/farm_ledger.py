"""Opens the ledger for a flow: by block, by environment, or the control server's own."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from blocks.farm_ledger import FarmLedger
from comfyfarm.control.state import control_status
from comfyfarm.errors import UsageError
from comfyfarm.ledger.ledger import Ledger, open_ledger
from comfyfarm.settings import read_settings


@asynccontextmanager
async def farm_ledger(block: str | None) -> AsyncIterator[Ledger]:
    """The ledger, open while this is.

    Raises:
        UsageError: neither a block nor COMFYFARM_LEDGER names one, or the block is missing.
    """
    ledger = await open_ledger(await _address(block))
    try:
        yield ledger
    finally:
        await ledger.close()


async def _address(block: str | None) -> str:
    if block is not None:
        return (await FarmLedger.named(block)).address.get_secret_value()
    settings = read_settings()
    if settings.ledger is not None:
        return settings.ledger.get_secret_value()
    running = control_status(settings.state_dir)
    if running is not None and running.ledger_url:
        return running.ledger_url
    raise UsageError(
        "no ledger is named: set COMFYFARM_LEDGER, pass the name of a ledger block, "
        "or start the control server: comfyfarm control start"
    )
