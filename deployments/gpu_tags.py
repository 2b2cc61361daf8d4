"""No GPU tag without a limit: one without would be unlimited."""

from collections.abc import Sequence

from comfyfarm.comfy.wire import Device
from comfyfarm.errors import ServerUnreachable
from comfyfarm.farm.servers import health, model_slug
from comfyfarm.ledger.ledger import open_ledger
from comfyfarm.ledger.records import ServerRecord
from deployments.wanted import Wanted
from flows.gpu_limits import set_gpu_limits


async def look_at_servers(urls: Sequence[str], host: str) -> tuple[ServerRecord, ...]:
    """The servers with their devices, by `/system_stats`.

    Raises:
        ServerUnreachable: one of them does not answer: its GPU is not known then.
    """
    return tuple([await _record(url, host) for url in dict.fromkeys(urls)])


async def _record(url: str, host: str) -> ServerRecord:
    found = await health(url)
    if found.stats is None:
        raise ServerUnreachable(found.url, f"{found.fault}; start it, or leave it out")
    device: Device = found.stats.device
    return ServerRecord(url=url.rstrip("/"), host=host, device=device.name, model=model_slug(device))


async def set_up_limits(wanted: Wanted) -> dict[str, int]:
    """Have a limit for each tag of this host: its servers, and all that live in the ledger."""
    ledger = await open_ledger(wanted.ledger.get_secret_value())
    try:
        return await set_gpu_limits(ledger, wanted.host, declared=wanted.records)
    finally:
        await ledger.close()
