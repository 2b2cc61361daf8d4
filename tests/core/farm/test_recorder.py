"""What an attempt writes down, and how it is told to stop."""

import asyncio
from typing import Any, cast

import pytest

from comfyfarm.clock import SystemClock
from comfyfarm.errors import StaleClaim
from comfyfarm.farm.recorder import Recorder
from comfyfarm.farm.servers import Server
from comfyfarm.ids import JobId, LeaseToken
from comfyfarm.ledger.ledger import Ledger
from comfyfarm.ledger.records import AttemptRecord, Claim

CLAIM = Claim(job_id=JobId("j"), token=LeaseToken(1), owner="me")


class Writes:
    """A ledger as a recorder sees it."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.gate = asyncio.Event()
        self.gate.set()

    async def begin_attempt(self, claim: Claim, **fields: str) -> AttemptRecord:
        self.calls.append(f"begin {fields['server_url']}")
        return AttemptRecord(id=7, job_id=claim.job_id, number=1, token=claim.token, started=0.0, **fields)

    async def submitted(self, _claim: Claim, attempt_id: int, number: int) -> None:
        await self.gate.wait()
        self.calls.append(f"submitted {attempt_id} {number}")

    async def end_attempt(self, _claim: Claim, attempt_id: int, **fields: Any) -> None:
        self.calls.append(f"end {attempt_id} {fields['reason']}")


class Place:
    """A server as a recorder sees it."""

    url, identity = "http://h:1", "1/2"


def recorder(writes: Writes, left: AttemptRecord | None = None) -> Recorder:
    return Recorder(cast(Ledger, writes), CLAIM, cast(Server, Place()), client_id="c", left=left)


async def test_the_number_is_kept_with_the_attempt() -> None:
    writes = Writes()
    found = recorder(writes)
    await found.submitting()
    await found.submitted(3.0)

    assert found.attempt is not None
    assert found.attempt.prompt_number == 3
    assert writes.calls == ["begin http://h:1", "submitted 7 3"]


async def test_a_try_that_was_left_is_ended_before_a_new_one_begins() -> None:
    first = recorder(Writes())
    await first.submitting()
    writes = Writes()

    await recorder(writes, left=first.attempt).submitting()

    assert writes.calls == ["end 7 given back", "begin http://h:1"]


async def test_after_a_stop_nothing_is_sent() -> None:
    writes = Writes()
    found = recorder(writes)
    await asyncio.wait_for(found.stop(within_s=20), 5)

    with pytest.raises(StaleClaim, match="interrupted"):
        await found.submitting()

    assert writes.calls == []


async def test_a_stop_waits_for_what_is_on_its_way() -> None:
    writes = Writes()
    found = recorder(writes)
    await found.submitting()
    stopping = asyncio.create_task(found.stop(within_s=20))
    await SystemClock().sleep(0.01)
    assert not stopping.done()

    await found.submitted(3.0)

    await asyncio.wait_for(stopping, 5)


async def test_a_stop_does_not_wait_for_an_attempt_that_is_over_nor_for_ever() -> None:
    found = recorder(Writes())
    await found.submitting()
    await asyncio.wait_for(found.stop(within_s=0.01), 5)

    found.ended()

    await asyncio.wait_for(found.stop(within_s=20), 5)
