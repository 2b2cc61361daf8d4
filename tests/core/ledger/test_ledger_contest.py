"""Workers that compete for the same jobs, in processes of their own: each job runs once."""

import asyncio
import subprocess
import sys
from collections import Counter
from collections.abc import Awaitable, Callable

from sqlalchemy import update

from comfyfarm.errors import StaleClaim
from comfyfarm.ids import JobId
from comfyfarm.ledger.ledger import Ledger, open_ledger
from comfyfarm.ledger.records import OutputFile, Status
from comfyfarm.ledger.schema import db_now, jobs

AddJobs = Callable[..., Awaitable[tuple[JobId, ...]]]
ON_SERVER = {"server_url": "http://s", "server_identity": "1:2", "client_id": "c"}

_WORKER = """
import asyncio, sys
from comfyfarm.ledger.ledger import open_ledger
from comfyfarm.ledger.owner import is_gone, this_owner
from comfyfarm.ledger.records import OutputFile

async def work(ledger, owner):
    while taken := await ledger.take("b", owner, 1, is_gone=is_gone):
        ((job, claim),) = taken
        attempt = await ledger.begin_attempt(claim, server_url="u", server_identity="i", client_id=owner)
        print(job.id, flush=True)
        await ledger.submitted(claim, attempt.id, 1)
        files = [OutputFile(path="a.png", sha256="a" * 64, size=1)]
        await ledger.rendered(claim, attempt.id, files, spool="/s", seconds=1.0)
        await ledger.succeed(claim)

async def main():
    async with await open_ledger(sys.argv[1]) as ledger:
        owner = this_owner()
        await asyncio.gather(*(work(ledger, owner) for _ in range(4)))

asyncio.run(main())
"""


async def test_two_workers_that_compete_run_each_of_40_jobs_once(
    ledger: Ledger, ledger_url: str, add_jobs: AddJobs
) -> None:
    ids = await add_jobs(40)
    command = [sys.executable, "-c", _WORKER, ledger_url]

    async def work() -> list[str]:
        done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, check=True)
        return str(done.stdout).split()

    shares = await asyncio.gather(work(), work())

    assert Counter(shares[0] + shares[1]) == Counter(dict.fromkeys(ids, 1))
    records = await ledger.jobs("b")
    assert {(job.status, job.attempts_made, len(job.files)) for job in records} == {(Status.SUCCEEDED, 1, 1)}


async def test_with_leases_that_lapse_all_the_time_each_job_is_finished_once(
    ledger: Ledger, ledger_url: str, add_jobs: AddJobs
) -> None:
    """Owners lose their claims at any moment, at work, and go on writing: only one of them is heard."""
    ids = await add_jobs(20)
    finished: Counter[JobId] = Counter()
    outputs: dict[JobId, str] = {}

    async def work(own: Ledger, name: str) -> None:
        while not await _is_over(own):
            for job, claim in await own.take("b", name, 2):
                try:
                    attempt = await own.begin_attempt(claim, **ON_SERVER)
                    path = f"{name}-{claim.token}.png"
                    files = [OutputFile(path=path, sha256="a" * 64, size=1)]
                    await own.rendered(claim, attempt.id, files, spool="/s", seconds=1.0)
                    await own.succeed(claim)
                except StaleClaim:
                    continue
                finished[job.id] += 1
                outputs[job.id] = path

    async def lapse() -> None:
        statement = update(jobs).where(jobs.c.owner.is_not(None)).values(lease_until=db_now() - 1.0)
        for _ in range(60):
            await ledger._write(lambda connection: connection.execute(statement).rowcount)

    owners = [await open_ledger(ledger_url) for _ in range(3)]
    try:
        async with asyncio.timeout(50):
            await asyncio.gather(lapse(), *(work(own, name) for own, name in zip(owners, "abc", strict=True)))
    finally:
        for own in owners:
            await own.close()

    assert finished == Counter(dict.fromkeys(ids, 1))
    # A renderer may have lost its claim after it rendered: then whoever took over finished or redid it.
    kept = {job.id: tuple(file.path for file in job.files) for job in await ledger.jobs("b")}
    assert kept == {job: (path,) for job, path in outputs.items()}


async def _is_over(ledger: Ledger) -> bool:
    counts = await ledger.counts("b")
    return set(counts) <= {"succeeded"}
