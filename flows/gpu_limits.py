"""The GPU slots as Prefect sees them: a concurrency limit for each tag, counted in the ledger."""

from collections import Counter
from collections.abc import Sequence

from prefect import get_client

from comfyfarm.ledger.ledger import Ledger
from comfyfarm.ledger.records import ServerRecord

HYDRATE_SLOTS = 4  # model files that one host fetches at a time


async def set_gpu_limits(
    ledger: Ledger, host: str, *, declared: Sequence[ServerRecord] = ()
) -> dict[str, int]:
    """Set `gpu:<host>` and `gpu:<model>` to the living servers of the whole farm; safe to repeat.

    Under one lock, since two hosts of one model both count. A tag without a limit would be
    unlimited, one without servers keeps its last limit. `declared` servers count as living.
    """
    async with ledger.lock("gpu-limits"):
        living = await ledger.living_servers()
        servers = {(server.host, server.url): server for server in (*declared, *living)}.values()
        counts = Counter(f"gpu:{server.host}" for server in servers)
        counts += Counter(f"gpu:{server.model}" for server in servers)
        counts[f"hydrate:{host}"] = HYDRATE_SLOTS
        async with get_client() as client:
            for tag, limit in sorted(counts.items()):
                await client.create_concurrency_limit(tag=tag, concurrency_limit=limit)
    return dict(counts)
