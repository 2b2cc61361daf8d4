"""No interleaving of claims, leases, crashes and ends lets two owners finish one job.

A model of one batch is driven beside the real ledger. Each claim that was ever handed out stays in
play, so that former owners go on writing as if nothing had happened.
"""

import asyncio
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    invariant,
    multiple,
    precondition,
    rule,
    run_state_machine_as_test,
)
from pydantic import BaseModel
from sqlalchemy import select, update

from comfyfarm.errors import StaleClaim
from comfyfarm.ids import JobId
from comfyfarm.ledger.ledger import Ledger, open_ledger
from comfyfarm.ledger.records import FINISHED, BatchRecord, Claim, OutputFile, Status
from comfyfarm.ledger.schema import attempts, db_now, jobs, outputs
from comfyfarm.plan.job import JobSpec

GRAPH = "a" * 64
OWNERS = st.sampled_from(["ann", "bob", "cy"])
JOBS = 3


class Model(BaseModel):
    """What must be true of a job."""

    status: Status = Status.PENDING
    token: int = 0
    owner: str | None = None
    has_lapsed: bool = False
    """Its lease is over, but nobody has come yet."""
    attempts: int = 0
    open_attempt: int | None = None
    files: tuple[OutputFile, ...] = ()
    is_spooled: bool = False
    ends: int = 0
    """How often it was finished, and how often a person took that back."""
    requeues: int = 0

    def is_held(self, claim: Claim) -> bool:
        return (self.token, self.owner) == (claim.token, claim.owner)

    def is_told_again(self, claim: Claim, status: Status) -> bool:
        """Whether the answer may have been lost: asked again, it is no error, and changes nothing."""
        return self.status is status and self.token == claim.token

    def is_free(self, dead: set[str]) -> bool:
        return self.owner is None or self.has_lapsed or self.owner in dead

    def turn(self) -> int:
        if self.status is Status.RENDERED:
            return 0
        return 1 if self.open_attempt is not None else 2

    def end(self, status: Status) -> None:
        assert self.status not in FINISHED
        self.status, self.owner, self.has_lapsed = status, None, False
        self.ends += 1


class ClaimMachine(RuleBasedStateMachine):
    """Owners that take, work, crash and lapse, on one batch of a real ledger."""

    ledger: Ledger
    runner: asyncio.Runner
    claims = Bundle("claims")

    def __init__(self) -> None:
        super().__init__()
        self.batch = uuid.uuid4().hex
        specs = [
            JobSpec(
                id=JobId(str(uuid.uuid4())),
                batch=self.batch,
                position=position,
                graph_digest=GRAPH,
                content_digest=GRAPH,
                priority=position % 2,
            )
            for position in range(JOBS)
        ]
        batch = BatchRecord(name=self.batch, out="o")
        self.run(self.ledger.add_batch(batch, {GRAPH: "{}"}, specs))
        self.model = {spec.id: Model() for spec in specs}
        self.order = {spec.id: (-spec.priority, spec.position) for spec in specs}
        self.attempt_of: dict[tuple[JobId, int], int] = {}

    def run(self, work: Any) -> Any:
        return self.runner.run(work)

    def has(self, statuses: set[Status]) -> bool:
        return any(model.status in statuses for model in self.model.values())

    # --- getting and losing claims --------------------------------------------------------------

    @rule(target=claims, owner=OWNERS, limit=st.integers(1, JOBS), dead=st.sets(OWNERS, max_size=1))
    def take(self, owner: str, limit: int, dead: set[str]) -> Any:
        """`dead` are the owners whose processes the taker knows to be gone."""
        dead = dead - {owner}
        free = [
            job for job, model in self.model.items() if model.status not in FINISHED and model.is_free(dead)
        ]
        free.sort(key=lambda job: (self.model[job].turn(), *self.order[job]))

        taken = self.run(self.ledger.take(self.batch, owner, limit, dead_owners=sorted(dead)))

        assert [record.id for record, _ in taken] == free[:limit]
        for record, claim in taken:
            model = self.model[record.id]
            if model.status is Status.PENDING:
                model.status = Status.RUNNING
            model.token, model.owner, model.has_lapsed = model.token + 1, owner, False
            assert (record.status, claim.token) == (model.status, model.token)
            assert record.files == (model.files if model.status is Status.RENDERED else ())
        return multiple(*(claim for _, claim in taken))

    @rule(claim=claims)
    def lapse(self, claim: Claim) -> None:
        """Whoever has the job now (perhaps because it crashed) does not renew it in time."""
        statement = update(jobs).where(jobs.c.id == claim.job_id, jobs.c.owner.is_not(None))
        moved = statement.values(lease_until=db_now() - 1.0)
        self.run(self.ledger._write(lambda connection: connection.execute(moved).rowcount))
        model = self.model[claim.job_id]
        model.has_lapsed = model.owner is not None

    @rule(held=st.lists(claims, max_size=4))
    def renew(self, held: list[Claim]) -> None:
        lost = self.run(self.ledger.renew(held))

        assert lost == {one.job_id for one in held} - {
            one.job_id for one in held if self.model[one.job_id].is_held(one)
        }
        for one in held:
            if self.model[one.job_id].is_held(one):
                self.model[one.job_id].has_lapsed = False

    @rule(claim=claims)
    def give_back(self, claim: Claim) -> None:
        self.run(self.ledger.give_back(claim))
        model = self.model[claim.job_id]
        if model.is_held(claim):
            model.owner, model.has_lapsed = None, False
            if model.status is Status.RUNNING:
                model.status = Status.PENDING

    # --- what an owner writes -------------------------------------------------------------------

    def write(self, claim: Claim, work: Any, *, may: bool = True) -> bool:
        """Whether it was kept; a stale claim must be refused and change nothing at all."""
        model = self.model[claim.job_id]
        if model.is_held(claim) and may:
            self.result = self.run(work)
            return True
        before = self.run(self.rows(claim.job_id))
        with pytest.raises(StaleClaim):
            self.run(work)
        assert self.run(self.rows(claim.job_id)) == before
        return False

    async def rows(self, job_id: JobId) -> list[Any]:
        """Every row of the job, as it lies in the database."""
        tables = ((jobs, jobs.c.id), (attempts, attempts.c.job), (outputs, outputs.c.job))

        def read(connection: Any) -> list[Any]:
            queries = [
                select(table).where(key == job_id).order_by(*table.primary_key) for table, key in tables
            ]
            return [tuple(row) for query in queries for row in connection.execute(query)]

        return await self.ledger._read(read)

    @rule(claim=claims)
    def begin(self, claim: Claim) -> None:
        work = self.ledger.begin_attempt(
            claim, server_url="http://s", server_identity="1:2", client_id=claim.owner
        )
        if self.write(claim, work):
            model = self.model[claim.job_id]
            model.status, model.is_spooled = Status.RUNNING, False
            model.attempts += 1
            model.open_attempt = self.result.id
            assert self.result.number == model.attempts
            self.attempt_of[claim.job_id, claim.token] = self.result.id

    @rule(claim=claims)
    def submitted(self, claim: Claim) -> None:
        attempt = self.attempt_of.get((claim.job_id, claim.token))
        if attempt is not None:
            self.write(claim, self.ledger.submitted(claim, attempt, 7))

    @rule(claim=claims)
    def fail(self, claim: Claim) -> None:
        attempt = self.attempt_of.get((claim.job_id, claim.token), 0)
        work = self.ledger.end_attempt(claim, attempt, verdict="transient", reason="oom", message="no")
        if self.write(claim, work):
            self.model[claim.job_id].open_attempt = None

    @rule(claim=claims, count=st.integers(0, 2))
    def rendered(self, claim: Claim, count: int) -> None:
        """Files are named after the claim: whose they are can be seen for ever."""
        attempt = self.attempt_of.get((claim.job_id, claim.token))
        if attempt is None:
            return
        name = f"{claim.owner}-{claim.token}-{self.model[claim.job_id].attempts}"
        files = tuple(OutputFile(path=f"{name}-{one}.png", sha256=GRAPH, size=one) for one in range(count))
        if self.write(claim, self.ledger.rendered(claim, attempt, files, spool="/s", seconds=1.0)):
            model = self.model[claim.job_id]
            model.status, model.files, model.is_spooled, model.open_attempt = (
                Status.RENDERED,
                files,
                True,
                None,
            )
            assert self.result[0].files == files

    @rule(claim=claims)
    def succeed(self, claim: Claim) -> None:
        model = self.model[claim.job_id]
        if model.is_told_again(claim, Status.SUCCEEDED):
            self.run(self.ledger.succeed(claim))
        elif self.write(claim, self.ledger.succeed(claim), may=model.status is Status.RENDERED):
            model.end(Status.SUCCEEDED)
            model.is_spooled, model.open_attempt = False, None

    @rule(claim=claims, status=st.sampled_from([Status.DEAD, Status.CANCELLED]))
    def give_up(self, claim: Claim, status: Status) -> None:
        model = self.model[claim.job_id]
        if status is Status.DEAD:
            work = self.ledger.bury(claim, reason_class="oom", reason="no")
        else:
            work = self.ledger.cancel(claim, "no")
        if model.is_told_again(claim, status):
            self.run(work)
        elif self.write(claim, work):
            model.end(status)
            model.open_attempt = None

    # --- what people do -------------------------------------------------------------------------

    @rule(dead=st.sets(OWNERS, max_size=1))
    def cancel_batch(self, dead: set[str]) -> None:
        meant = [
            model
            for model in self.model.values()
            if model.status in {Status.PENDING, Status.RUNNING} and model.is_free(dead)
        ]
        count = self.run(self.ledger.cancel_batch(self.batch, "no", dead_owners=sorted(dead)))
        assert count == len(meant)
        for model in meant:
            model.end(Status.CANCELLED)

    @precondition(lambda self: self.has({Status.DEAD, Status.CANCELLED}))
    @rule()
    def requeue(self) -> None:
        meant = [model for model in self.model.values() if model.status in {Status.DEAD, Status.CANCELLED}]
        assert self.run(self.ledger.requeue(self.batch)) == len(meant)
        for model in meant:
            model.status = Status.RENDERED if model.is_spooled else Status.PENDING
            model.token += 1
            model.requeues += 1

    @precondition(lambda self: self.has({Status.DEAD}))
    @rule()
    def drop(self) -> None:
        meant = [model for model in self.model.values() if model.status is Status.DEAD]
        assert self.run(self.ledger.drop(self.batch)) == len(meant)
        for model in meant:
            model.status = Status.CANCELLED

    # --- what is always true --------------------------------------------------------------------

    @invariant()
    def the_ledger_is_what_the_model_says(self) -> None:
        for record in self.run(self.ledger.jobs(self.batch)):
            model = self.model[record.id]
            assert (record.status, record.token, record.owner) == (model.status, model.token, model.owner)
            assert record.attempts_made == model.attempts
            assert record.files == model.files
            assert (record.spool is not None) == model.is_spooled

    @invariant()
    def no_job_is_finished_twice_without_a_requeue(self) -> None:
        for model in self.model.values():
            assert model.ends <= model.requeues + 1
            assert model.status is not Status.SUCCEEDED or model.ends == model.requeues + 1

    @invariant()
    def what_is_done_has_the_outputs_of_who_finished_it_or_rendered_it(self) -> None:
        for record in self.run(self.ledger.jobs(self.batch)):
            if record.status is Status.SUCCEEDED:
                tries = self.run(self.ledger.attempts(record.id))
                good = [one for one in tries if one.verdict == "succeeded"]
                renderer = f"{good[-1].client_id}-{good[-1].token}-{good[-1].number}-"
                assert all(file.path.startswith(renderer) for file in record.files)


@pytest.fixture
def machine(ledger_url: str) -> Iterator[type[ClaimMachine]]:
    """The machine, on this database."""
    with asyncio.Runner() as runner:
        ledger = runner.run(open_ledger(ledger_url))
        yield type("ClaimMachineHere", (ClaimMachine,), {"ledger": ledger, "runner": runner})
        runner.run(ledger.close())


@pytest.mark.timeout(240)
def test_no_interleaving_lets_two_owners_finish_one_job(machine: type[ClaimMachine]) -> None:
    run_state_machine_as_test(
        machine, settings=settings(max_examples=25, stateful_step_count=40, deadline=None)
    )
