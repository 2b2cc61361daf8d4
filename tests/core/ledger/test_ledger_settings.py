"""Priority, deadline, tenant and deadlines of jobs: who is handed out first, and who too late."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest
from sqlalchemy import text

from comfyfarm.clock import SystemClock
from comfyfarm.errors import StaleClaim
from comfyfarm.ids import JobId
from comfyfarm.ledger.ledger import Ledger
from comfyfarm.ledger.records import BatchRecord, JobRecord, OutputFile, Status
from comfyfarm.plan.job import JobSpec

GRAPH = "a" * 64
ON_SERVER = {"server_url": "http://s", "server_identity": "1:2", "client_id": "c"}
PAST, FUTURE = 1_000_000_000.0, SystemClock().now() + 86_400.0
MakeJob = Callable[..., JobSpec]
Expire = Callable[[Sequence[JobId]], Awaitable[None]]
Add = Callable[..., Awaitable[list[JobId]]]


@pytest.fixture
def add(ledger: Ledger, make_job: MakeJob) -> Add:
    """Adds jobs with these settings, in this order, and gives their ids."""

    async def add_these(*settings: dict[str, Any], specs: Sequence[JobSpec] = ()) -> list[JobId]:
        made = specs or [make_job(position) for position in range(len(settings))]
        jobs = [spec.model_copy(update=each) for spec, each in zip(made, settings, strict=True)]
        await ledger.add_batch(BatchRecord(name="b", out="o"), {GRAPH: "{}"}, jobs)
        return [spec.id for spec in jobs]

    return add_these


def settings_of(job: JobRecord) -> dict[str, Any]:
    return job.settings


async def test_settings_come_back_as_they_were_handed_in(ledger: Ledger, add: Add) -> None:
    given = {"priority": -3, "deadline": FUTURE, "tenant": "Ä", "deadlines": {"execution_s": 5.5}}
    own, none = await add(given, {})

    assert settings_of(await ledger.job(own)) == given
    assert settings_of(await ledger.job(none)) == {
        "priority": 0, "deadline": None, "tenant": "", "deadlines": {},
    }  # fmt: skip


async def test_higher_priority_comes_first_and_equals_as_the_file_has_them(ledger: Ledger, add: Add) -> None:
    ids = await add({"priority": -1}, {}, {"priority": 7}, {}, {"priority": 7})

    taken = await ledger.take("b", "me", 5)

    assert [job.id for job, _ in taken] == [ids[2], ids[4], ids[1], ids[3], ids[0]]


async def test_priority_passes_neither_rendered_jobs_nor_those_on_a_server(ledger: Ledger, add: Add) -> None:
    rendered, on_server, urgent = await add({}, {"priority": -5}, {"priority": 9})
    claims = {job.id: claim for job, claim in await ledger.take("b", "me", 3)}
    attempt = await ledger.begin_attempt(claims[rendered], **ON_SERVER)
    await ledger.rendered(claims[rendered], attempt.id, (), spool="/s", seconds=1.0)
    await ledger.begin_attempt(claims[on_server], **ON_SERVER)
    for claim in claims.values():
        await ledger.give_back(claim)

    taken = [(await ledger.take("b", "you", 1))[0][0].id for _ in range(3)]

    assert taken == [rendered, on_server, urgent]


async def test_the_next_job_is_found_without_sorting(ledger: Ledger, add: Add) -> None:
    """With 10,000 jobs waiting, sorting them for each that is taken would cost more than all else."""
    await add({})
    query = (
        "SELECT id FROM jobs WHERE batch = 'b' AND turn < 3"
        " ORDER BY turn, priority DESC, position, id LIMIT 1"
    )

    def explain(connection: Any) -> str:
        if connection.dialect.name == "sqlite":
            return str(connection.execute(text(f"EXPLAIN QUERY PLAN {query}")).all())
        connection.execute(text("SET LOCAL enable_seqscan = off"))
        connection.execute(text("SET LOCAL enable_bitmapscan = off"))
        return str(connection.execute(text(f"EXPLAIN {query}")).all())

    plan = await ledger._write(explain)

    assert "ix_jobs_batch_turn" in plan
    assert "B-TREE" not in plan
    assert "Sort" not in plan


async def test_the_same_jobs_with_other_settings_take_them_unless_they_are_finished(
    ledger: Ledger, add: Add, make_job: MakeJob
) -> None:
    specs = [make_job(position) for position in range(3)]
    waiting, running, done = await add({}, {}, {"priority": 9}, specs=specs)
    first = await ledger.take("b", "me", 2)
    claims = {job.id: claim for job, claim in first}
    await ledger.bury(claims[done], reason_class="oom", reason="no")
    assert set(claims) == {done, waiting}

    later = {"priority": 4, "deadline": FUTURE, "tenant": "t", "deadlines": {"cancel_s": 3.0}}
    await add(later, later, later, specs=specs)

    assert settings_of(await ledger.job(waiting)) == later
    assert settings_of(await ledger.job(running)) == later
    assert (await ledger.job(done)).priority == 9
    assert await ledger.renew([claims[waiting]]) == frozenset()  # still its owner's


async def test_a_job_past_its_deadline_is_not_begun_but_dies_with_the_reason(
    ledger: Ledger, add: Add
) -> None:
    late, early = await add({"deadline": PAST}, {"deadline": FUTURE})

    assert [job.id for job, _ in await ledger.take("b", "me", 1)] == [early]
    assert (await ledger.job(late)).status is Status.PENDING
    assert await ledger.take("b", "me", 1) == ()

    dead = await ledger.job(late)
    assert (dead.status, dead.reason_class) == (Status.DEAD, "too late")
    assert dead.reason == "too late: not begun by 2001-09-09 01:46:40+00:00"
    assert dead.ended is not None
    assert await ledger.take("b", "me", 1) == ()


async def test_jobs_that_come_too_late_are_told_of_once(ledger: Ledger, add: Add) -> None:
    late, _, later = await add({"deadline": PAST}, {}, {"deadline": PAST + 1})
    told: list[JobRecord] = []

    assert len(await ledger.take("b", "me", 2, on_late=told.extend)) == 1
    assert await ledger.take("b", "me", 2, on_late=told.extend) == ()

    assert {job.id for job in told} == {late, later}
    assert {(job.status, job.reason_class) for job in told} == {(Status.DEAD, "too late")}
    assert await ledger.counts("b") == {"dead": 2, "running": 1}


async def test_what_is_begun_outlives_its_deadline(ledger: Ledger, add: Add, make_job: MakeJob) -> None:
    specs = [make_job(position) for position in range(3)]
    await add({}, {}, {}, specs=specs)
    (_, held), (_, open_), (_, rendered) = await ledger.take("b", "me", 3)
    await ledger.begin_attempt(open_, **ON_SERVER)
    attempt = await ledger.begin_attempt(rendered, **ON_SERVER)
    files = [OutputFile(path="a.png", sha256=GRAPH, size=3)]
    await ledger.rendered(rendered, attempt.id, files, spool="/s", seconds=1.0)
    late = {"deadline": PAST}
    await add(late, late, late, specs=specs)

    assert await ledger.take("b", "you", 1) == ()

    await ledger.give_back(open_)
    await ledger.give_back(rendered)
    assert [job.id for job, _ in await ledger.take("b", "you", 3)] == [rendered.job_id, open_.job_id]
    assert await ledger.renew([held]) == frozenset()


async def test_a_late_job_of_an_owner_that_is_gone_does_not_wait_for_ever(
    ledger: Ledger, add: Add, make_job: MakeJob, expire: Expire
) -> None:
    specs = [make_job(position) for position in range(2)]
    ids = await add({}, {}, specs=specs)
    (_, first), (_, second) = await ledger.take("b", "me", 2)
    await add({"deadline": PAST}, {"deadline": PAST}, specs=specs)

    assert await ledger.take("b", "you", 1) == ()
    await expire([ids[0]])
    assert await ledger.take("b", "you", 1) == ()
    assert (await ledger.job(ids[0])).status is Status.DEAD
    assert await ledger.take("b", "you", 1, dead_owners=["me"]) == ()
    assert (await ledger.job(ids[1])).status is Status.DEAD

    for claim in (first, second):
        with pytest.raises(StaleClaim):
            await ledger.begin_attempt(claim, **ON_SERVER)


async def test_an_owner_that_is_found_gone_while_taking_loses_its_jobs(ledger: Ledger, add: Add) -> None:
    await add({}, {})
    await ledger.take("b", "gone", 1)
    await ledger.take("b", "alive", 1)
    asked: list[str] = []

    def is_gone(owner: str) -> bool:
        asked.append(owner)
        return owner == "gone"

    ((job, claim),) = await ledger.take("b", "me", 2, is_gone=is_gone)

    assert (job.owner, claim.token) == ("me", 2)
    assert sorted(asked) == ["alive", "gone"]
    await ledger.take("b", "me", 2, is_gone=is_gone)
    assert "me" not in asked
