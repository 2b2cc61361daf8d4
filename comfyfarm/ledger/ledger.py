"""The ledger as one object: what its parts offer, on one database."""

from comfyfarm.clock import Clock
from comfyfarm.ledger.attempts import Attempts
from comfyfarm.ledger.batches import Batches
from comfyfarm.ledger.claims import Claims
from comfyfarm.ledger.dead_letters import DeadLetters
from comfyfarm.ledger.jobs import Jobs
from comfyfarm.ledger.locks import Locks
from comfyfarm.ledger.migrate import Migrations
from comfyfarm.ledger.servers import Servers
from comfyfarm.ledger.shards import Shards


class Ledger(Batches, Jobs, Claims, Attempts, DeadLetters, Servers, Shards, Locks, Migrations):
    """Everything that is true about batches, jobs, attempts, claims, servers and outputs.

    Made by `open_ledger`; belongs to one event loop; `close` it, or use it as a context manager.
    """

    async def __aenter__(self) -> "Ledger":
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self.close()


async def open_ledger(address: str, *, clock: Clock | None = None) -> Ledger:
    """Open a ledger, and bring its tables up to date.

    Args:
        address: `sqlite:///PATH` or `postgresql://USER:PASSWORD@HOST:PORT/NAME`; a unix socket's
            folder goes into `?host=`.
        clock: for the pauses between tries.

    Raises:
        UsageError: the address is none, or leads to no usable database.
        LedgerError: the database did not answer.
    """
    ledger = Ledger(address, clock)
    try:
        await ledger.migrate()
    except BaseException:
        await ledger.close()
        raise
    return ledger
