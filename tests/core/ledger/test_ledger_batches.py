"""Handing batches in, and taking them back."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from comfyfarm.errors import JobConflict, UsageError
from comfyfarm.ids import JobId
from comfyfarm.ledger.ledger import Ledger, open_ledger
from comfyfarm.ledger.records import BatchRecord, OutputFile, Status
from comfyfarm.plan.job import JobSpec

GRAPH = "a" * 64
BATCH = BatchRecord(name="b", out="s3://bucket/x", tenant="t", priority=3, parameters_json='{"local": true}')
AddJobs = Callable[..., Awaitable[tuple[JobId, ...]]]
MakeJob = Callable[..., JobSpec]


async def test_a_batch_comes_back_as_it_was_handed_in(ledger: Ledger, make_job: MakeJob) -> None:
    specs = [make_job(1), make_job(0)]

    await ledger.add_batch(BATCH, {GRAPH: '{"3": {}}'}, specs)

    found = await ledger.batch("b")
    assert found.model_copy(update={"created": None}) == BATCH
    assert found.parameters == {"local": True}
    assert [job.position for job in await ledger.jobs("b")] == [0, 1]
    assert (await ledger.job(specs[0].id)).overrides == specs[0].overrides
    assert await ledger.graph(GRAPH) == '{"3": {}}'
    assert await ledger.counts("b") == {"pending": 2}
    assert [batch.name for batch in await ledger.batches()] == ["b"]


async def test_the_same_batch_again_changes_nothing(ledger: Ledger, make_job: MakeJob) -> None:
    specs = [make_job(0), make_job(1)]
    await ledger.add_batch(BATCH, {GRAPH: "{}"}, specs)
    await ledger.take("b", "me", 1)
    before = await ledger.jobs("b")

    await ledger.add_batch(BATCH, {GRAPH: "{}"}, specs)

    assert await ledger.jobs("b") == before


async def test_a_known_batch_takes_new_jobs(ledger: Ledger, make_job: MakeJob) -> None:
    old, new = make_job(0), make_job(1)
    await ledger.add_batch(BATCH, {GRAPH: "{}"}, [old])

    await ledger.add_batch(BATCH, {}, [old, new])

    assert [job.id for job in await ledger.jobs("b")] == [old.id, new.id]


async def test_a_known_id_with_other_content_is_refused_by_name(ledger: Ledger, make_job: MakeJob) -> None:
    spec, stranger = make_job(0), make_job(1)
    await ledger.add_batch(BATCH, {GRAPH: "{}"}, [spec])
    changed = spec.model_copy(update={"content_digest": "d" * 64})

    with pytest.raises(JobConflict, match=f"{spec.id} of batch b .*other content"):
        await ledger.add_batch(BATCH, {GRAPH: "{}"}, [stranger, changed])

    assert [job.id for job in await ledger.jobs("b")] == [spec.id]


async def test_a_known_id_in_another_batch_is_refused_by_name(ledger: Ledger, make_job: MakeJob) -> None:
    spec = make_job(0)
    await ledger.add_batch(BATCH, {GRAPH: "{}"}, [spec])
    moved = spec.model_copy(update={"batch": "other"})

    with pytest.raises(JobConflict, match=f"{spec.id} is already in batch b"):
        await ledger.add_batch(BatchRecord(name="other", out="o"), {GRAPH: "{}"}, [moved])

    with pytest.raises(UsageError, match="no batch other"):
        await ledger.batch("other")


async def test_a_job_needs_its_graph_and_its_batch(ledger: Ledger, make_job: MakeJob) -> None:
    with pytest.raises(UsageError, match=r"graph aaa.* was not handed in"):
        await ledger.add_batch(BATCH, {}, [make_job(0)])
    with pytest.raises(UsageError, match="does not name batch b"):
        await ledger.add_batch(BATCH, {GRAPH: "{}"}, [make_job(0, batch="x")])

    assert await ledger.batches() == ()


async def test_what_is_not_there_is_named(ledger: Ledger) -> None:
    with pytest.raises(UsageError, match="no batch x"):
        await ledger.batch("x")
    with pytest.raises(UsageError, match="no job x"):
        await ledger.job(JobId("x"))
    with pytest.raises(UsageError, match="no graph x"):
        await ledger.graph("x")
    assert await ledger.jobs("x") == ()
    assert await ledger.attempts(JobId("x")) == ()


async def test_a_batch_of_thousands_is_taken_in(ledger: Ledger, make_job: MakeJob) -> None:
    specs = [make_job(position) for position in range(2000)]

    await ledger.add_batch(BATCH, {GRAPH: "{}"}, specs)
    await ledger.add_batch(BATCH, {GRAPH: "{}"}, specs)

    assert await ledger.counts("b") == {"pending": 2000}


async def test_several_processes_may_hand_the_same_batch_in_at_once(
    ledger: Ledger, ledger_url: str, make_job: MakeJob
) -> None:
    specs = [make_job(position) for position in range(50)]
    others = [await open_ledger(ledger_url) for _ in range(4)]
    try:
        await asyncio.gather(*(other.add_batch(BATCH, {GRAPH: "{}"}, specs) for other in others))
    finally:
        for other in others:
            await other.close()

    assert await ledger.counts("b") == {"pending": 50}


async def test_cancelling_a_batch_leaves_what_others_hold(ledger: Ledger, add_jobs: AddJobs) -> None:
    await add_jobs(3)
    ((held, claim),) = await ledger.take("b", "me", 1)

    assert await ledger.cancel_batch("b", "the user said so") == 2

    assert await ledger.counts("b") == {"running": 1, "cancelled": 2}
    last = (await ledger.jobs("b"))[-1]
    assert (last.reason_class, last.reason) == ("cancelled", "the user said so")
    assert last.ended is not None
    assert await ledger.renew([claim]) == frozenset()
    assert await ledger.cancel_batch("b", "dead", dead_owners=["me"]) == 1
    assert await ledger.renew([claim]) == {held.id}


async def test_a_requeued_job_keeps_its_attempts_but_starts_to_count_anew(
    ledger: Ledger, add_jobs: AddJobs
) -> None:
    await add_jobs(1)
    ((job, claim),) = await ledger.take("b", "me", 1)
    attempt = await ledger.begin_attempt(claim, server_url="u", server_identity="i", client_id="c")
    await ledger.end_attempt(claim, attempt.id, verdict="permanent", reason="node failed", message="no")
    await ledger.bury(claim, reason_class="node failed", reason="no", evidence="traceback")
    assert await ledger.evidence(job.id) == "traceback"

    assert await ledger.requeue("b") == 1
    assert await ledger.requeue("b") == 0

    again = await ledger.job(job.id)
    assert (again.status, again.attempts, again.reason, again.ended) == (Status.PENDING, 0, "", None)
    ((_, second),) = await ledger.take("b", "me", 1)
    await ledger.begin_attempt(second, server_url="u", server_identity="i", client_id="c")
    assert [(a.number, a.counts) for a in await ledger.attempts(job.id)] == [(1, False), (2, True)]
    assert (await ledger.job(job.id)).attempts == 1


async def test_requeue_takes_only_the_jobs_that_are_named(ledger: Ledger, add_jobs: AddJobs) -> None:
    first, second = await add_jobs(2)
    await ledger.cancel_batch("b", "x")

    assert await ledger.requeue("b", [second]) == 1

    assert (await ledger.job(first)).status is Status.CANCELLED
    assert (await ledger.job(second)).status is Status.PENDING


async def test_a_job_that_died_with_its_files_kept_is_only_uploaded_again(
    ledger: Ledger, add_jobs: AddJobs
) -> None:
    await add_jobs(1)
    ((job, claim),) = await ledger.take("b", "me", 1)
    attempt = await ledger.begin_attempt(claim, server_url="u", server_identity="i", client_id="c")
    files = [OutputFile(path="a.png", sha256=GRAPH, size=3)]
    await ledger.rendered(claim, attempt.id, files, spool="/spool", seconds=1.0)
    await ledger.bury(claim, reason_class="upload", reason="no such bucket")

    await ledger.requeue("b")

    again = await ledger.job(job.id)
    assert (again.status, again.spool, again.files) == (Status.RENDERED, "/spool", tuple(files))
