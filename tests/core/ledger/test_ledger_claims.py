"""Who gets which job, and who loses it."""

import asyncio
import subprocess
import sys
from collections.abc import Awaitable, Callable, Sequence

from comfyfarm.ids import JobId, LeaseToken
from comfyfarm.ledger.ledger import Ledger, open_ledger
from comfyfarm.ledger.owner import is_gone
from comfyfarm.ledger.records import Claim, OutputFile, Status

AddJobs = Callable[..., Awaitable[tuple[JobId, ...]]]
Expire = Callable[[Sequence[JobId]], Awaitable[None]]

ON_SERVER = {"server_url": "http://s", "server_identity": "1:2", "client_id": "c"}


async def owners(ledger: Ledger) -> list[str]:
    return sorted({job.owner for job in await ledger.jobs("b") if job.owner})


async def test_jobs_are_taken_in_the_order_of_the_file(ledger: Ledger, add_jobs: AddJobs) -> None:
    ids = await add_jobs(3)

    first = await ledger.take("b", "me", 2)
    second = await ledger.take("b", "me", 2)

    assert [job.id for job, _ in first] == list(ids[:2])
    assert [job.id for job, _ in second] == [ids[2]]
    assert await ledger.take("b", "me", 2) == ()
    assert await ledger.take("b", "me", 0) == ()
    job, claim = first[0]
    assert (job.status, job.token, job.owner) == (Status.RUNNING, 1, "me")
    assert claim == Claim(job_id=ids[0], token=LeaseToken(1), owner="me")
    assert await owners(ledger) == ["me"]


async def test_another_batch_is_left_alone(ledger: Ledger, add_jobs: AddJobs) -> None:
    await add_jobs(1, batch="other")

    assert await ledger.take("b", "me", 5) == ()


async def test_rendered_jobs_come_first_then_those_that_may_still_run(
    ledger: Ledger, add_jobs: AddJobs
) -> None:
    ids = await add_jobs(4)
    taken = await ledger.take("b", "me", 4)
    await ledger.begin_attempt(taken[2][1], **ON_SERVER)
    attempt = await ledger.begin_attempt(taken[3][1], **ON_SERVER)
    files = [OutputFile(path="a.png", sha256="a" * 64, size=3)]
    await ledger.rendered(taken[3][1], attempt.id, files, spool="/s", seconds=1.0)
    for _, claim in taken:
        await ledger.give_back(claim)

    again = await ledger.take("b", "you", 4)

    assert [job.id for job, _ in again] == [ids[3], ids[2], ids[0], ids[1]]
    assert (again[0][0].status, again[0][0].files) == (Status.RENDERED, tuple(files))
    assert [claim.token for _, claim in again] == [2, 2, 2, 2]


async def test_many_takers_never_share_a_job(ledger: Ledger, ledger_url: str, add_jobs: AddJobs) -> None:
    ids = await add_jobs(60)

    async def work(name: str) -> list[JobId]:
        mine: list[JobId] = []
        async with await open_ledger(ledger_url) as own:
            while taken := await own.take("b", name, 3):
                mine += [job.id for job, _ in taken]
        return mine

    shares = await asyncio.gather(*(work(f"owner-{number}") for number in range(6)))

    everything = [job_id for share in shares for job_id in share]
    assert sorted(everything) == sorted(ids)


_TAKER = """
import asyncio, sys
from comfyfarm.ledger.ledger import open_ledger
from comfyfarm.ledger.owner import this_owner

async def main() -> None:
    async with await open_ledger(sys.argv[1]) as ledger:
        owner = this_owner()
        while taken := await ledger.take("b", owner, 2):
            for job, _ in taken:
                print(job.id, flush=True)

asyncio.run(main())
"""


async def test_takers_in_several_processes_never_share_a_job(
    ledger: Ledger, ledger_url: str, add_jobs: AddJobs
) -> None:
    ids = await add_jobs(40)
    command = [sys.executable, "-c", _TAKER, ledger_url]

    async def work() -> str:
        done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, check=True)
        return str(done.stdout)

    printed = await asyncio.gather(work(), work())

    assert sorted(" ".join(printed).split()) == sorted(ids)


async def test_of_many_takers_of_one_job_one_gets_it(
    ledger: Ledger, ledger_url: str, add_jobs: AddJobs
) -> None:
    (wanted,) = await add_jobs(1)
    others = [await open_ledger(ledger_url) for _ in range(4)]
    try:
        got = await asyncio.gather(*(other.take("b", f"{number}", 1) for number, other in enumerate(others)))
    finally:
        for other in others:
            await other.close()

    assert [job.id for taken in got for job, _ in taken] == [wanted]


async def test_a_claim_whose_lease_ended_goes_to_the_next_with_a_new_token(
    ledger: Ledger, add_jobs: AddJobs, expire: Expire
) -> None:
    ids = await add_jobs(1)
    ((_, old),) = await ledger.take("b", "me", 1)
    assert await ledger.take("b", "you", 1) == ()

    await expire(ids)
    ((_, new),) = await ledger.take("b", "you", 1)

    assert new.token == old.token + 1
    assert await ledger.renew([old]) == {old.job_id}
    assert await ledger.renew([new]) == frozenset()


async def test_a_renewed_lease_holds(ledger: Ledger, add_jobs: AddJobs, expire: Expire) -> None:
    ids = await add_jobs(3)
    taken = await ledger.take("b", "me", 3)
    await expire(ids)

    # Ended, but nobody came: still ours.
    assert await ledger.renew([claim for _, claim in taken]) == frozenset()

    assert await ledger.take("b", "you", 3) == ()
    assert await ledger.renew([]) == frozenset()


async def test_renewing_names_exactly_the_lost_claims(
    ledger: Ledger, add_jobs: AddJobs, expire: Expire
) -> None:
    ids = await add_jobs(3)
    claims = [claim for _, claim in await ledger.take("b", "me", 3)]
    await expire([ids[1]])
    await ledger.take("b", "you", 1)
    await ledger.give_back(claims[2])

    assert await ledger.renew(claims) == {ids[1], ids[2]}


async def test_a_job_given_back_is_free_at_once(ledger: Ledger, add_jobs: AddJobs) -> None:
    await add_jobs(1)
    ((job, claim),) = await ledger.take("b", "me", 1)

    await ledger.give_back(claim)

    assert (await ledger.job(job.id)).status is Status.PENDING
    assert await owners(ledger) == []
    ((_, new),) = await ledger.take("b", "you", 1)
    await ledger.give_back(claim)
    assert await ledger.renew([new]) == frozenset()


_HOLDER = """
import asyncio, sys
from comfyfarm.ledger.ledger import open_ledger
from comfyfarm.ledger.owner import this_owner

async def main() -> None:
    async with await open_ledger(sys.argv[1]) as ledger:
        await ledger.take("b", this_owner(), 1)
        print("taken", flush=True)
        await asyncio.to_thread(sys.stdin.read)

asyncio.run(main())
"""


async def test_the_jobs_of_a_killed_process_are_taken_over_at_once(
    ledger: Ledger, ledger_url: str, add_jobs: AddJobs
) -> None:
    ids = await add_jobs(1)
    command = [sys.executable, "-c", _HOLDER, ledger_url]
    holder = await asyncio.to_thread(subprocess.Popen, command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with holder:
        assert holder.stdout is not None
        assert await asyncio.to_thread(holder.stdout.readline) == b"taken\n"
        (owner,) = await owners(ledger)
        assert not is_gone(owner)
        assert await ledger.take("b", "me", 1) == ()

        holder.kill()
        holder.wait()

    dead = [name for name in await owners(ledger) if is_gone(name)]
    assert dead == [owner]
    ((job, claim),) = await ledger.take("b", "me", 1, dead_owners=dead)
    assert (job.id, claim.token) == (ids[0], 2)
