"""Writes an attempt's steps into the ledger, guarded by the claim's token."""

import asyncio
import contextlib

from comfyfarm.errors import StaleClaim
from comfyfarm.farm.servers import Server
from comfyfarm.ledger.ledger import Ledger
from comfyfarm.ledger.records import AttemptRecord, Claim
from comfyfarm.run.outcome import Reason, Verdict


class Recorder:
    """The `Journal` of one attempt. `attempt` is None until something is about to be sent."""

    def __init__(
        self, ledger: Ledger, claim: Claim, server: Server, *, client_id: str, left: AttemptRecord | None
    ) -> None:
        """`left`: the attempt of an earlier process on this server, which this one takes up."""
        self._ledger, self._claim, self._server = ledger, claim, server
        self._client_id = client_id
        self.attempt = left
        self._is_stopped = False
        self._settled = asyncio.Event()
        self._settled.set()

    async def stop(self, *, within_s: float) -> None:
        """Nothing is sent from now on; what is just on its way is waited for, so that it can be cancelled."""
        self._is_stopped = True
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await self._settled.wait()

    def ended(self) -> None:
        """The attempt is over: nothing of it is on its way any more."""
        self._settled.set()

    async def submitting(self) -> None:
        """Commit where and as whom, before the POST: what a crash leaves can then be found.

        Raises:
            StaleClaim: the claim is lost, or the job is being interrupted.
        """
        if self._is_stopped:
            raise StaleClaim(f"job {self._claim.job_id} is being interrupted: it is not sent")
        self._settled.clear()
        if self.attempt is not None:
            # Taken up, and its server did not know it: that try is over, a new one begins.
            await give_up(
                self._ledger, self._claim, self.attempt.id, "its owner died, and the server has not got it"
            )
        await self._begin()

    async def submitted(self, number: float) -> None:
        """Commit the number of this run; one that the server does not say (negative) stays unknown."""
        if self.attempt is None:  # found there, from an attempt that was thought to be over
            await self._begin()
        if self.attempt is not None and number >= 0:
            await self._ledger.submitted(self._claim, self.attempt.id, int(number))
            self.attempt = self.attempt.model_copy(update={"prompt_number": int(number)})
        self._settled.set()

    async def _begin(self) -> None:
        self.attempt = await self._ledger.begin_attempt(
            self._claim,
            server_url=self._server.url,
            server_identity=self._server.identity,
            client_id=self._client_id,
        )


async def give_up(ledger: Ledger, claim: Claim, attempt_id: int, why: str) -> None:
    """End an attempt without an outcome: its owner stopped or died, and it counts against nothing."""
    await ledger.end_attempt(
        claim, attempt_id, verdict=Verdict.TRANSIENT, reason=Reason.GIVEN_BACK, message=why, gives_up=True
    )
