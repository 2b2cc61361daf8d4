"""What an owner writes, and that a former owner writes nothing."""

from collections.abc import Awaitable, Callable, Sequence

import pytest

from comfyfarm.errors import StaleClaim
from comfyfarm.ids import JobId
from comfyfarm.ledger.ledger import Ledger
from comfyfarm.ledger.records import AttemptRecord, Claim, OutputFile, Status

AddJobs = Callable[..., Awaitable[tuple[JobId, ...]]]
Expire = Callable[[Sequence[JobId]], Awaitable[None]]
Write = Callable[[Ledger, Claim, int], Awaitable[object]]

SHA = "a" * 64
FILES = (
    OutputFile(path="a.png", sha256=SHA, size=3),
    OutputFile(path="sub/b.png", sha256="b" * 64, size=2**40),
)


async def begin(ledger: Ledger, claim: Claim) -> AttemptRecord:
    return await ledger.begin_attempt(claim, server_url="http://s", server_identity="1:2", client_id="c")


async def test_the_way_from_claim_to_success(ledger: Ledger, add_jobs: AddJobs) -> None:
    await add_jobs(1)
    ((job, claim),) = await ledger.take("b", "me", 1)

    attempt = await begin(ledger, claim)
    await ledger.submitted(claim, attempt.id, 7)
    await ledger.rendered(
        claim, attempt.id, FILES[::-1], spool="/s", seconds=1.5, device="cuda:0 X", server_version="0.27"
    )
    assert (await ledger.job(job.id)).status is Status.RENDERED
    assert (await ledger.job(job.id)).spool == "/s"
    await ledger.succeed(claim)

    done = await ledger.job(job.id)
    assert (done.status, done.files, done.seconds, done.spool) == (Status.SUCCEEDED, FILES, 1.5, None)
    assert (done.server_url, done.attempts, done.owner) == ("http://s", 1, None)
    assert done.started is not None
    assert done.ended is not None
    assert done.started <= done.ended
    assert (await ledger.jobs("b")) == (done,)
    (kept,) = await ledger.attempts(job.id)
    assert (kept.number, kept.prompt_number, kept.verdict, kept.device) == (1, 7, "succeeded", "cuda:0 X")
    assert (kept.server_url, kept.server_identity, kept.client_id) == ("http://s", "1:2", "c")
    assert kept.ended is not None
    assert await ledger.take("b", "you", 1) == ()


async def test_a_failed_attempt_leaves_the_job_claimed_with_its_reason(
    ledger: Ledger, add_jobs: AddJobs
) -> None:
    await add_jobs(1)
    ((job, claim),) = await ledger.take("b", "me", 1)
    first = await begin(ledger, claim)

    await ledger.end_attempt(
        claim, first.id, verdict="transient", reason="oom", message="out of memory", evidence="trace"
    )
    second = await begin(ledger, claim)

    now = await ledger.job(job.id)
    assert (now.status, now.reason_class, now.reason) == (Status.RUNNING, "oom", "out of memory")
    assert now.attempts == 2
    attempts = await ledger.attempts(job.id)
    assert [(a.number, a.verdict, a.evidence) for a in attempts] == [
        (1, "transient", "trace"),
        (2, None, ""),
    ]
    assert attempts[1].id == second.id
    assert attempts[1].ended is None


async def test_an_attempt_left_open_is_ended_by_the_next_owner(
    ledger: Ledger, add_jobs: AddJobs, expire: Expire
) -> None:
    ids = await add_jobs(2)
    ((job, old),) = await ledger.take("b", "me", 1)
    first = await begin(ledger, old)
    await expire(ids)
    ((_, new),) = await ledger.take("b", "you", 1)

    # Followed: the new owner ends what the old one began.
    await ledger.submitted(new, first.id, 3)
    await begin(ledger, new)

    before, after = await ledger.attempts(job.id)
    assert (before.prompt_number, before.verdict, before.message) == (3, None, "given up")
    assert before.ended is not None
    assert (after.ended, after.token) == (None, 2)


async def test_a_rendered_job_that_is_tried_again_gives_its_files_up(
    ledger: Ledger, add_jobs: AddJobs
) -> None:
    await add_jobs(1)
    ((job, claim),) = await ledger.take("b", "me", 1)
    first = await begin(ledger, claim)
    await ledger.rendered(claim, first.id, FILES, spool="/s", seconds=1.0)

    second = await begin(ledger, claim)
    assert (await ledger.job(job.id)).status is Status.RUNNING
    assert (await ledger.job(job.id)).spool is None
    await ledger.rendered(claim, second.id, FILES[:1], spool="/t", seconds=1.0)

    assert (await ledger.job(job.id)).files == FILES[:1]


async def test_a_failed_upload_is_noted_and_the_job_stays_rendered(ledger: Ledger, add_jobs: AddJobs) -> None:
    await add_jobs(1)
    ((job, claim),) = await ledger.take("b", "me", 1)
    attempt = await begin(ledger, claim)
    await ledger.rendered(claim, attempt.id, FILES, spool="/s", seconds=1.0)

    await ledger.note_upload_failure(claim, "bucket said 503")
    await ledger.give_back(claim)

    kept = await ledger.job(job.id)
    assert (kept.status, kept.reason_class, kept.reason) == (Status.RENDERED, "upload", "bucket said 503")
    assert (kept.upload_failures, kept.files) == (1, FILES)


@pytest.mark.parametrize("status", [Status.DEAD, Status.CANCELLED])
async def test_a_job_ends_dead_or_cancelled_with_its_reason(
    ledger: Ledger, add_jobs: AddJobs, status: Status
) -> None:
    await add_jobs(1)
    ((job, claim),) = await ledger.take("b", "me", 1)
    end = {
        Status.DEAD: ledger.bury(claim, reason_class="cancelled", reason="why", evidence="e"),
        Status.CANCELLED: ledger.cancel(claim, "why"),
    }
    chosen = end.pop(status)
    for other in end.values():
        other.close()

    await chosen

    ended = await ledger.job(job.id)
    assert (ended.status, ended.reason_class, ended.reason) == (status, "cancelled", "why")
    assert await ledger.take("b", "you", 1) == ()


def _end(ledger: Ledger, claim: Claim, attempt: int) -> Awaitable[None]:
    return ledger.end_attempt(claim, attempt, verdict="transient", reason="server", message="late")


WRITES: dict[str, Write] = {
    "begin": lambda ledger, claim, _: begin(ledger, claim),
    "submitted": lambda ledger, claim, attempt: ledger.submitted(claim, attempt, 9),
    "end": _end,
    "rendered": lambda ledger, claim, attempt: ledger.rendered(claim, attempt, (), spool="/x", seconds=9.0),
    "succeed": lambda ledger, claim, _: ledger.succeed(claim),
    "bury": lambda ledger, claim, _: ledger.bury(claim, reason_class="oom", reason="late"),
    "cancel": lambda ledger, claim, _: ledger.cancel(claim, "late"),
    "upload": lambda ledger, claim, _: ledger.note_upload_failure(claim, "late"),
}


@pytest.mark.parametrize("write", WRITES)
async def test_a_stale_claim_writes_nothing(
    ledger: Ledger, add_jobs: AddJobs, expire: Expire, write: str
) -> None:
    ids = await add_jobs(1)
    ((job, old),) = await ledger.take("b", "me", 1)
    attempt = await begin(ledger, old)
    await ledger.rendered(old, attempt.id, FILES, spool="/s", seconds=1.0)
    await expire(ids)
    await ledger.take("b", "you", 1)
    before = (await ledger.job(job.id), await ledger.attempts(job.id))

    with pytest.raises(StaleClaim, match=job.id):
        await WRITES[write](ledger, old, attempt.id)

    assert (await ledger.job(job.id), await ledger.attempts(job.id)) == before


@pytest.mark.parametrize("write", ["begin", "submitted", "end", "rendered", "bury", "cancel"])
async def test_a_claim_that_was_given_back_writes_nothing(
    ledger: Ledger, add_jobs: AddJobs, write: str
) -> None:
    await add_jobs(1)
    ((job, claim),) = await ledger.take("b", "me", 1)
    attempt = await begin(ledger, claim)
    await ledger.give_back(claim)

    with pytest.raises(StaleClaim):
        await WRITES[write](ledger, claim, attempt.id)

    assert (await ledger.job(job.id)).status is Status.PENDING


async def test_only_a_rendered_job_succeeds(ledger: Ledger, add_jobs: AddJobs) -> None:
    await add_jobs(1)
    ((_, claim),) = await ledger.take("b", "me", 1)

    with pytest.raises(StaleClaim):
        await ledger.succeed(claim)


async def test_finishing_twice_with_the_same_claim_is_no_error(ledger: Ledger, add_jobs: AddJobs) -> None:
    await add_jobs(1)
    ((job, claim),) = await ledger.take("b", "me", 1)
    attempt = await begin(ledger, claim)
    await ledger.rendered(claim, attempt.id, FILES, spool="/s", seconds=1.0)
    await ledger.succeed(claim)

    await ledger.succeed(claim)

    with pytest.raises(StaleClaim):
        await ledger.bury(claim, reason_class="oom", reason="late")
    assert (await ledger.job(job.id)).status is Status.SUCCEEDED
