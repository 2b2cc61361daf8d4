"""No GPU tag without a limit: one without would be unlimited."""

import asyncio
from collections.abc import Sequence

from comfyfarm.errors import ServerError
from comfyfarm.farm.servers import examine, no_server
from comfyfarm.ledger.ledger import open_ledger
from comfyfarm.ledger.records import ServerRecord
from deployments.wanted import Wanted
from flows.gpu_limits import set_gpu_limits


async def look_at_servers(urls: Sequence[str], host: str) -> tuple[ServerRecord, ...]:
    """The servers with their devices. All must answer: the GPU of one that does not is not known.

    Raises:
        ServerError: one of them does not answer now.
        UsageError: something else than ComfyUI answers there.
    """
    return tuple(await asyncio.gather(*(_record(url, host) for url in dict.fromkeys(urls))))


async def _record(url: str, host: str) -> ServerRecord:
    try:
        return (await examine(url, host)).record()
    except ServerError as exc:
        raise no_server([exc]) from exc


async def set_up_limits(wanted: Wanted) -> dict[str, int]:
    """Have a limit for each tag of this host: its servers, and all that live in the ledger."""
    ledger = await open_ledger(wanted.ledger.get_secret_value())
    try:
        return await set_gpu_limits(ledger, wanted.host, declared=wanted.records)
    finally:
        await ledger.close()
