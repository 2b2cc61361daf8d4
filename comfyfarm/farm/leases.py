"""Keeps a shard's claims and servers alive in the ledger, all of them in one statement each."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import Self

from comfyfarm.clock import Clock
from comfyfarm.errors import FarmError
from comfyfarm.ledger.claims import LEASE_S
from comfyfarm.ledger.ledger import Ledger
from comfyfarm.ledger.records import Claim, ServerRecord

logger = logging.getLogger(__name__)

RENEW_S = LEASE_S / 3
SURE_S = LEASE_S * 3 / 4
"""For so long after a claim was asked for is it surely ours; what was begun then has the rest to end."""


class Leases:
    """While entered: the servers are registered, the claims renewed, and both given up at the end."""

    def __init__(
        self,
        ledger: Ledger,
        owner: str,
        servers: Sequence[ServerRecord],
        *,
        claims: Callable[[], Iterable[Claim]],
        on_kept: Callable[[Claim, float], None],
        on_lost: Callable[[Claim], None],
        clock: Clock,
    ) -> None:
        """`claims`: those of the moment.

        `on_kept` is told of each that is ours, and until when surely, in monotonic seconds; `on_lost` of each
        whose job another owner has now.
        """
        self._ledger, self._owner, self._clock = ledger, owner, clock
        self._servers = {server.url: server for server in servers}
        self._claims, self._on_kept, self._on_lost = claims, on_kept, on_lost
        self._renewer: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        await self._register()
        self._renewer = asyncio.create_task(self._renew(), name="lease renewer")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._renewer is not None:
            self._renewer.cancel()
            await asyncio.gather(self._renewer, return_exceptions=True)
        await self._ledger.remove_servers(self._owner)

    async def drop_server(self, url: str) -> None:
        """A server that is of no use any more counts no more, at once."""
        if self._servers.pop(url, None) is not None:
            await self._ledger.remove_server(url, self._owner)

    async def _register(self) -> None:
        await self._ledger.register_servers(list(self._servers.values()), self._owner, LEASE_S)

    async def _renew(self) -> None:
        while True:
            await self._clock.sleep(RENEW_S)
            # The claims first: what they keep is worth more.
            for renew in (self._renew_claims, self._renew_servers):
                try:
                    await renew()
                except FarmError as exc:
                    logger.warning("leases could not be renewed: %s", exc)
                except Exception:
                    logger.exception("leases could not be renewed")

    async def _renew_claims(self) -> None:
        await self.renew(tuple(self._claims()))

    async def renew(self, claims: Sequence[Claim]) -> None:
        """Renew some claims now, and say which are kept and which are lost.

        Raises:
            LedgerError: the ledger did not answer.
        """
        until = self._clock.monotonic() + SURE_S
        lost = await self._ledger.renew(claims)
        for claim in claims:
            if claim.job_id in lost:
                self._on_lost(claim)
            else:
                self._on_kept(claim, until)

    async def _renew_servers(self) -> None:
        if await self._ledger.renew_servers(self._owner) < len(self._servers):
            await self._register()  # silent for so long that others swept them away
