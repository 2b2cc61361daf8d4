"""Dead letters: seen, requeued, dropped."""

from collections.abc import Awaitable, Callable

from comfyfarm.clock import SystemClock
from comfyfarm.ids import JobId
from comfyfarm.ledger.ledger import Ledger
from comfyfarm.ledger.records import Status

AddJobs = Callable[..., Awaitable[tuple[JobId, ...]]]


async def bury(ledger: Ledger, count: int, *, batch: str = "b") -> None:
    for number, (_, claim) in enumerate(await ledger.take(batch, "me", count)):
        await ledger.bury(claim, reason_class="oom", reason=f"oom: {number}", evidence="traceback")


async def test_dead_letters_come_in_the_order_of_their_death(ledger: Ledger, add_jobs: AddJobs) -> None:
    ids = await add_jobs(3)
    others = await add_jobs(1, batch="other")
    await bury(ledger, 2)
    await SystemClock().sleep(0.01)  # SQLite's clock counts milliseconds
    await bury(ledger, 1, batch="other")

    assert [job.id for job in await ledger.dead_letters()] == [*ids[:2], *others]
    assert [job.id for job in await ledger.dead_letters("b")] == list(ids[:2])
    assert await ledger.dead_letters("none") == ()


async def test_a_dropped_job_is_cancelled_and_keeps_its_evidence(ledger: Ledger, add_jobs: AddJobs) -> None:
    first, second, third = await add_jobs(3)
    await bury(ledger, 2)

    assert await ledger.drop("b", [first, third]) == 1
    assert await ledger.drop("b", [second], why="drawn by hand") == 1
    assert await ledger.drop("b") == 0

    dropped = await ledger.job(first)
    assert (dropped.status, dropped.reason_class) == (Status.CANCELLED, "cancelled")
    assert dropped.reason == "dropped: oom: 0"
    assert (await ledger.job(second)).reason == "dropped: drawn by hand (oom: 1)"
    assert await ledger.evidence(first) == "traceback"
    assert (await ledger.job(third)).status is Status.PENDING


async def test_a_requeued_dead_letter_is_handed_out_once(ledger: Ledger, add_jobs: AddJobs) -> None:
    (job,) = await add_jobs(1)
    await bury(ledger, 1)

    assert await ledger.requeue("b", [job]) == 1
    assert await ledger.requeue("b", [job]) == 0

    assert [record.id for record, _ in await ledger.take("b", "me", 5)] == [job]
    assert await ledger.take("b", "you", 5) == ()
    assert await ledger.requeue("b", [job]) == 0


async def test_jobs_are_found_by_how_their_ids_begin(ledger: Ledger, add_jobs: AddJobs) -> None:
    first, _ = await add_jobs(2)

    assert [job.id for job in await ledger.find_jobs(first)] == [first]
    assert first in [job.id for job in await ledger.find_jobs(first[:8])]
    assert await ledger.find_jobs("%") == ()
    assert len(await ledger.find_jobs("")) == 2
