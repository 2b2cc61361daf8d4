"""A shard: what was left elsewhere, claims that are lost, jobs that are given back."""

import asyncio
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Any

import httpx
import pytest
from sqlalchemy import text

from comfyfarm.clock import SystemClock
from comfyfarm.comfy.client import ComfyClient
from comfyfarm.errors import NoLane, SpoolError, StaleClaim
from comfyfarm.farm.prepare import plan_jobs, prepare
from comfyfarm.farm.servers import examine_all
from comfyfarm.farm.shard import Shard
from comfyfarm.farm.sources import read_sources
from comfyfarm.farm.stage import open_shard, record_batch
from comfyfarm.ledger.ledger import Ledger, open_ledger
from comfyfarm.ledger.owner import this_owner
from comfyfarm.run.retry import Collect, Retry

Serving = Callable[..., Any]


@asynccontextmanager
async def shard_of(
    project: Any, count: int, urls: list[str], *, away: tuple[str, ...] = ()
) -> AsyncIterator[tuple[Shard, Ledger]]:
    """An open shard of a recorded batch; its lanes are the test's to open.

    `away`: servers that were given, too, and did not answer when it began.
    """
    request = project.request(project.jobs(count)).model_copy(update={"servers": (*urls, *away)})
    servers = await examine_all(urls)
    prepared = prepare(request, read_sources(request), servers[0].node_schema)
    async with await open_ledger(project.ledger_url) as ledger:
        await record_batch(ledger, request, prepared)
        async with open_shard(
            request, prepared, servers, ledger=ledger, state_dir=project.root / "state"
        ) as shard:
            yield shard, ledger


@asynccontextmanager
async def lanes(shard: Shard) -> AsyncIterator[None]:
    working = [asyncio.create_task(shard.lanes.work(url)) for url in shard.servers]
    try:
        yield
    finally:
        shard.lanes.close()
        await asyncio.gather(*working, return_exceptions=True)


async def taken(shard: Shard) -> Any:
    (job,) = await shard.take(1)
    return job


async def test_a_prompt_that_was_left_on_another_server_is_ended_there_first(
    project: Any, serving: Serving, graph: Any, until: Any
) -> None:
    elsewhere, here = serving(script="hang"), serving()
    async with shard_of(project, 1, [here.url]) as (shard, ledger):
        ((record, claim),) = await ledger.take((await ledger.batches())[0].name, this_owner(), 1)
        await ledger.begin_attempt(claim, server_url=elsewhere.url, server_identity="", client_id="dead")
        async with ComfyClient(elsewhere.url) as client:
            await client.submit(graph(), prompt_id=record.id, client_id="dead")
        await until(lambda: bool(elsewhere.fake.log[0]["started"]))
        await ledger.give_back(claim)

        async with lanes(shard):
            job = await taken(shard)
            assert await shard.render(job) == Collect()
            await shard.sync(job)

        tries = await ledger.attempts(job.id)
        assert await shard.is_finished()
    assert elsewhere.fake.log[0]["end"] == "interrupted"
    assert [one.reason for one in tries] == ["given back", None]
    assert here.prompts == [job.id]


@pytest.mark.parametrize("was_away", [True, False], ids=["away at first", "its lane is gone"])
@pytest.mark.parametrize("script", ["ok", "slow:1.5", "exit-node"])
async def test_a_prompt_on_a_given_server_is_followed_although_that_has_no_lane(
    project: Any, serving: Serving, graph: Any, script: str, *, was_away: bool
) -> None:
    there, here = serving(script=script), serving()
    urls = [here.url] if was_away else [there.url, here.url]
    async with shard_of(project, 1, urls, away=(there.url,) * was_away) as (shard, ledger):
        ((record, claim),) = await ledger.take((await ledger.batches())[0].name, this_owner(), 1)
        left = await ledger.begin_attempt(
            claim, server_url=there.url, server_identity="", client_id="of the dead one"
        )
        async with ComfyClient(there.url) as client:
            answer = await client.submit(graph(), prompt_id=record.id, client_id="of the dead one")
        await ledger.submitted(claim, left.id, int(answer.number or 0))
        await ledger.give_back(claim)
        if not was_away:
            await shard.lanes.lost(there.url)

        working = asyncio.create_task(shard.lanes.work(here.url))
        job = await taken(shard)
        step = await shard.render(job)
        while isinstance(step, Retry):
            step = await shard.render(job)
        await shard.sync(job)
        shard.lanes.close()
        await working
        tries = await ledger.attempts(job.id)

    was_lost = script == "exit-node"
    assert [one.verdict for one in tries] == ["transient"] * was_lost + ["succeeded"]
    assert there.prompts == [job.id]
    assert here.prompts == [job.id] * was_lost


@pytest.mark.parametrize("is_known", [True, False])
async def test_files_that_another_host_kept_are_had_from_the_server_again(
    project: Any, serving: Serving, *, is_known: bool
) -> None:
    served = serving()
    async with shard_of(project, 1, [served.url]) as (shard, ledger), lanes(shard):
        first = await taken(shard)
        assert await shard.render(first) == Collect()
        shutil.rmtree(project.root / "state" / "spool")
        await ledger.give_back(first.claim)
        if not is_known:
            async with httpx.AsyncClient() as client:
                await client.post(f"{served.url}/fake/restart")

        job = await taken(shard)
        assert job.record.status == "rendered"
        assert await shard.render(job) == Collect()
        await shard.sync(job)
        tries = await ledger.attempts(job.id)

    assert [one.verdict for one in tries if one.reason != "given back"] == ["succeeded"]
    assert served.prompts == [job.id] * (1 if is_known else 2)
    assert len(project.files()) == 2


async def test_what_a_dead_host_stored_of_a_lost_render_is_taken_away(project: Any, serving: Serving) -> None:
    served = serving()
    async with shard_of(project, 1, [served.url]) as (shard, ledger), lanes(shard):
        first = await taken(shard)
        assert await shard.render(first) == Collect()
        (file,) = first.record.files
        stored = project.out / first.id / file.path
        stored.parent.mkdir(parents=True)
        stored.write_bytes(b"stored, and then its host died")
        shutil.rmtree(project.root / "state" / "spool")
        await ledger.give_back(first.claim)
        async with httpx.AsyncClient() as client:
            await client.post(f"{served.url}/fake/restart")

        job = await taken(shard)
        assert await shard.render(job) == Collect()
        await shard.sync(job)

    (again,) = job.record.files
    assert again.path != file.path  # the server counts its files on
    assert project.files() == sorted([f"{job.id}/{again.path}", f"{job.id}/provenance.json"])


async def test_an_owner_that_was_frozen_beyond_its_lease_stores_nothing(
    project: Any, serving: Serving
) -> None:
    served = serving()
    async with shard_of(project, 1, [served.url]) as (shard, ledger), lanes(shard):
        job = await taken(shard)
        assert await shard.render(job) == Collect()
        job.sure_until = float("-inf")  # as far as it can know
        await ledger.take(job.record.batch, "another", 1, dead_owners=[job.claim.owner])

        with pytest.raises(StaleClaim):
            await shard.sync(job)

    assert project.files() == []


async def test_an_owner_that_was_frozen_within_its_lease_goes_on(project: Any, serving: Serving) -> None:
    served = serving()
    async with shard_of(project, 1, [served.url]) as (shard, _), lanes(shard):
        job = await taken(shard)
        assert await shard.render(job) == Collect()
        job.sure_until = float("-inf")
        await shard.sync(job)

    assert len(project.files()) == 2


async def test_a_server_that_did_not_take_it_is_avoided_while_there_is_another(
    project: Any, serving: Serving
) -> None:
    first, second = serving(script="500*9"), serving(script="500*9")
    async with shard_of(project, 1, [first.url, second.url]) as (shard, ledger), lanes(shard):
        job = await taken(shard)
        steps = [await shard.render(job) for _ in range(3)]
        servers = [one.server_url for one in await ledger.attempts(job.id)]

    assert all(isinstance(step, Retry) for step in steps)
    assert all(before != after for before, after in pairwise(servers))


async def test_a_shard_that_was_frozen_takes_none_of_its_own_jobs_again(
    project: Any, serving: Serving
) -> None:
    served = serving()
    async with shard_of(project, 3, [served.url]) as (shard, ledger):
        ours, others = await shard.take(2)
        for job in (ours, others):
            job.sure_until = float("-inf")
        await ledger._write(lambda c: c.execute(text("UPDATE jobs SET lease_until = 0")).rowcount)
        ((stolen, _),) = await ledger.take(ours.record.batch, "another", 1)
        assert stolen.id == ours.id
        ours, others = others, ours

        (third,) = await shard.take(3)

        assert (await ledger.job(ours.id)).token == 1
        assert ours.sure_until > SystemClock().monotonic()
        assert third.id not in {ours.id, others.id}
        with pytest.raises(StaleClaim):
            await ledger.succeed(others.claim)


async def test_the_loss_of_an_old_claim_is_no_loss_of_a_newer_one(project: Any, serving: Serving) -> None:
    served = serving()
    async with shard_of(project, 1, [served.url]) as (shard, ledger):
        old = await taken(shard)
        await ledger.give_back(old.claim)
        new = await taken(shard)
        assert (new.id, new.claim.token) == (old.id, 2)

        shard._lost(old.claim)
        shard._kept(old.claim, float("inf"))
        await shard.leave()

        assert new.sure_until == float("-inf")
        assert (await ledger.job(new.id)).owner is None


async def test_a_lost_claim_throws_the_result_away(project: Any, serving: Serving) -> None:
    served = serving(prompt_seconds=0.3)
    async with shard_of(project, 1, [served.url]) as (shard, ledger), lanes(shard):
        job = await taken(shard)
        rendering = asyncio.create_task(shard.render(job))
        while not served.prompts:
            await SystemClock().sleep(0.01)
        await ledger.take(job.record.batch, "another", 1, dead_owners=[job.claim.owner])

        with pytest.raises(StaleClaim):
            await rendering
        (record,) = await ledger.jobs(job.record.batch)
        assert record.status == "running"
        assert record.files == ()


async def test_without_lanes_whoever_waits_is_told(project: Any, serving: Serving) -> None:
    served = serving()
    async with shard_of(project, 1, [served.url]) as (shard, ledger):
        job = await taken(shard)
        rendering = asyncio.create_task(shard.render(job))
        await SystemClock().sleep(0.05)
        assert not rendering.done()

        async with lanes(shard):
            shard.lanes.close()
        with pytest.raises(NoLane):
            await rendering
        await shard.give_back(job)

        assert not shard.lanes.are_left
        assert await shard.is_finished()  # nothing is left that this shard could do
        await shard.__aexit__(None, None, None)
        (record,) = await ledger.jobs(job.record.batch)
        assert (record.status, record.owner) == ("pending", None)


async def test_cancelling_interrupts_the_prompts_and_cancels_the_jobs(
    project: Any, serving: Serving, until: Any
) -> None:
    served = serving(script="hang*9")
    async with shard_of(project, 3, [served.url]) as (shard, ledger), lanes(shard):
        job = await taken(shard)
        rendering = asyncio.create_task(shard.render(job))
        await until(lambda: bool(served.fake.log and served.fake.log[0]["started"]))
        rendering.cancel()
        await asyncio.gather(rendering, return_exceptions=True)

        await shard.interrupt(cancelled=True)
        await shard.interrupt(cancelled=True)

        records = await ledger.jobs(job.record.batch)
        (attempt,) = await ledger.attempts(job.id)
        assert await shard.is_finished()
    assert {one.status for one in records} == {"cancelled"}
    assert (attempt.reason, attempt.message) == ("given back", "interrupted by us")
    assert served.fake.log[0]["end"] == "interrupted"


async def test_a_prompt_that_is_just_being_sent_is_interrupted_too(
    project: Any, serving: Serving, until: Any
) -> None:
    served = serving(script="hang*9")
    async with shard_of(project, 2, [served.url]) as (shard, ledger), lanes(shard):
        jobs = [await taken(shard) for _ in range(2)]
        rendering = [asyncio.create_task(shard.render(job)) for job in jobs]
        # The second POST is on its way, or about to be, in some of the runs of this test.
        await until(lambda: served.asked("POST /prompt") >= 1)
        for task in rendering:
            task.cancel()
        await asyncio.gather(*rendering, return_exceptions=True)

        await shard.interrupt(cancelled=False)

        async with ComfyClient(served.url) as client:
            queues = await client.queue()
        records = await ledger.jobs(jobs[0].record.batch)
    assert [len(entries) for entries in queues.values()] == [0, 0]
    assert [(one.status, one.owner) for one in records] == [("pending", None)] * 2


async def test_the_shard_and_its_servers_are_in_the_ledger_while_it_is_open(
    project: Any, serving: Serving
) -> None:
    served = serving()
    async with shard_of(project, 1, [served.url]) as (shard, ledger):
        assert [one.url for one in await ledger.living_servers()] == [served.url]
        assert shard.room(0) == 0
        assert not shard.lanes.has_begun(served.url)
        async with lanes(shard):
            assert await shard.lanes.began(10)
            assert shard.room(0) == 3
    async with await open_ledger(project.ledger_url) as ledger:
        assert await ledger.living_servers() == ()


async def test_a_host_that_cannot_keep_files_blames_no_job_and_renders_nothing_twice(
    project: Any, serving: Serving
) -> None:
    served = serving(prompt_seconds=0.3)
    spool = project.root / "state" / "spool"
    spool.parent.mkdir()
    spool.write_text("a file where the folder should be: no disk takes anything here")
    request = project.request(project.jobs(3))

    with pytest.raises(SpoolError, match="free some space"):
        await project.render(request)
    before = await project.rows(f"{plan_jobs(request, read_sources(request)).batch}")
    spool.unlink()
    after = await project.render(request)

    assert {row.status for row in before} == {"pending"}
    assert {row.status for row in after} == {"succeeded"}
    assert set(project.prompts().values()) == {1}
    assert {one["end"] for one in served.fake.log} == {"success"}


async def test_an_interrupt_leaves_the_outcome_of_a_job_that_waits_for_its_retry(
    project: Any, serving: Serving
) -> None:
    served = serving(script="oom")
    async with shard_of(project, 1, [served.url]) as (shard, ledger), lanes(shard):
        job = await taken(shard)
        assert isinstance(await shard.render(job), Retry)
        await shard.interrupt(cancelled=False)

        (tried,) = await ledger.attempts(job.id)
        record = await ledger.job(job.id)
    assert (tried.verdict, tried.reason) == ("transient", "oom")
    assert "OutOfMemoryError" in tried.evidence
    assert (record.status, record.owner, record.attempts) == ("pending", None, 1)
