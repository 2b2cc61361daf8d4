"""`make chaos` in its short form, and that its verdict finds what must never be."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from comfyfarm.ids import JobId, LeaseToken
from comfyfarm.ledger.records import AttemptRecord, JobRecord, OutputFile, Status
from infra.chaos.batch import Planned
from infra.chaos.evidence import Evidence, Execution, Kept, Said
from infra.chaos.fault_log import Struck
from infra.chaos.figures import Figure
from infra.chaos.kinds import DRAWN, FULL_DISK, KILL_SERVER, LONG_FREEZE, At
from infra.chaos.left_out import has_cause, left_out_servers
from infra.chaos.storm import FULL, SHORT, Storm
from infra.chaos.verdict import verdict
from infra.chaos.workers import Worker

ROOT = Path(__file__).resolve().parents[2]
SHA, OTHER_SHA = "1" * 64, "2" * 64
JOB = JobId("0c6f2c3c-3f06-4f0f-9d6e-6d2a4c1c7c55")
HERE, THERE = "http://127.0.0.1:1", "http://127.0.0.1:2"


@pytest.mark.timeout(300)
def test_a_storm_in_short_loses_nothing_and_doubles_nothing() -> None:
    kept = {key: value for key, value in os.environ.items() if not key.startswith("PREFECT_")}
    done = subprocess.run(
        [sys.executable, "-m", "infra.chaos", "--short", "--seed", "1"],
        cwd=ROOT,
        env=kept,
        capture_output=True,
        text=True,
    )

    figures = {figure["name"]: figure for figure in map(json.loads, done.stdout.splitlines())}
    assert done.returncode == 0, [figure for figure in figures.values() if not figure["ok"]] or done.stderr
    assert figures["jobs finished"]["value"] == 50
    assert figures["faults"]["value"] >= figures["seconds"]["value"] - 2
    assert {"farm PostgreSQL restarted", "worker RLIMIT_FSIZE"} <= figures["faults, by kind"]["value"].keys()


# --- the verdict -----------------------------------------------------------------------------------


def job(status: Status = Status.SUCCEEDED, **more: Any) -> JobRecord:
    files = (OutputFile(path="a.png", sha256=SHA, size=3),) if status is Status.SUCCEEDED else ()
    plain = {"id": JOB, "batch": "chaos", "position": 0, "graph_digest": SHA, "content_digest": SHA}
    return JobRecord.model_validate(
        {**plain, "status": status, "overrides": (), "files": files, "attempts": 1, **more}
    )


def tried(number: int, verdict: str | None, reason: str | None = None, **more: Any) -> AttemptRecord:
    """Attempt `number` lasts from ten times that second for eight seconds."""
    plain = {"id": number, "job_id": JOB, "number": number, "token": LeaseToken(1), "server_identity": ""}
    times = {"started": 10.0 * number, "ended": 10.0 * number + 8}
    where = {"server_url": HERE, "client_id": f"client {number}"}
    return AttemptRecord.model_validate(
        {**plain, **times, **where, "verdict": verdict, "reason": reason, **more}
    )


def ran(number: int, end: str | None = "success", **more: Any) -> Execution:
    """The run that attempt `number` began."""
    times = {"received": 10.0 * number + 1, "started": 10.0 * number + 2, "ended": 10.0 * number + 6}
    where = {"server": HERE, "client_id": f"client {number}"}
    return Execution.model_validate({"prompt_id": JOB, "end": end, **times, **where, **more})


PICTURE = Kept(path=f"{JOB}/a.png", sha256=SHA, size=3, of_job=JOB)
PAPERS = Kept(path=f"{JOB}/provenance.json", sha256=OTHER_SHA, size=9, of_job=None)
SAID = Said(job=JOB, attempts=1, files=(("a.png", SHA),))


def evidence(
    jobs: Sequence[JobRecord] = (),
    attempts: Sequence[AttemptRecord] = (),
    executions: Sequence[Execution] = (),
    **more: Any,
) -> Evidence:
    """A job that was done at once, but for what is said otherwise."""
    return Evidence(
        jobs=tuple(jobs) or (job(),),
        attempts=tuple(attempts) or (tried(1, "succeeded"),),
        executions=tuple(executions) or (ran(1),),
        **{"files": (PICTURE, PAPERS), "provenances": (SAID,), **more},
    )


def struck(name: str, begun: float, over: float, *, server: str | None = HERE) -> Struck:
    (kind,) = {one for one in (*DRAWN, LONG_FREEZE, FULL_DISK) if f"{one.at} {one.name}" == name}
    return Struck(kind=kind, server=server if kind.at is not At.WORKER else None, begun=begun, over=over)


def failing(found: Evidence, *faults: Struck, files: int = 1) -> set[str]:
    figures: tuple[Figure, ...] = verdict([Planned(id=JOB, files=files)], found, faults)
    return {figure.name for figure in figures if not figure.ok}


def test_a_job_that_is_done_once_holds() -> None:
    assert failing(evidence()) == set()


@pytest.mark.parametrize(
    ("found", "name"),
    [
        (evidence(jobs=[job(Status.PENDING)], files=(), provenances=()), "jobs finished"),
        (
            evidence(attempts=[tried(1, "succeeded"), tried(2, "succeeded")]),
            "jobs without exactly one success",
        ),
        (evidence(files=(PAPERS,)), "files missing"),
        (evidence(files=(PICTURE,)), "files missing"),
        (
            evidence(files=(PICTURE, PAPERS, Kept(path=".partial-1", sha256=SHA, size=1, of_job=None))),
            "files that nothing knows of",
        ),
        (
            evidence(files=(PICTURE, PAPERS, PICTURE.model_copy(update={"path": f"{JOB}/b.png"}))),
            "pictures twice",
        ),
        (
            evidence(files=(PICTURE.model_copy(update={"sha256": OTHER_SHA}), PAPERS)),
            "files with other bytes than the ledger's",
        ),
        (
            evidence(files=(PICTURE.model_copy(update={"of_job": "another"}), PAPERS)),
            "files with other bytes than the ledger's",
        ),
        (evidence(provenances=(SAID.model_copy(update={"attempts": 2}),)), "provenances that say otherwise"),
        (
            evidence(attempts=[tried(1, "transient", "server"), tried(2, "succeeded")]),
            "attempts that failed without a cause",
        ),
        (evidence(executions=[ran(1), ran(1, server=THERE)]), "executions for nothing"),
        (evidence(executions=[ran(1), ran(1, client_id="nobody we know")]), "executions for nothing"),
        (
            evidence(executions=[ran(1), ran(1, end=None)]),
            "executions that their server did not live to see end",
        ),
    ],
)
def test_what_must_never_be_is_found(found: Evidence, name: str) -> None:
    assert name in failing(found)


def test_a_job_with_too_few_pictures_is_found() -> None:
    assert failing(evidence(), files=2) == {"jobs with too many or too few files"}


TWICE = evidence(
    attempts=[tried(1, "transient", "crash"), tried(2, "succeeded")],
    executions=[ran(1, end=None, ended=None), ran(2)],
)


@pytest.mark.parametrize(
    ("faults", "holds"),
    [
        ([], False),
        ([struck("server kill", 15, 17)], True),
        ([struck("server kill", 15, 17, server=THERE)], False),
        ([struck("server kill", 4, 6)], False),
        ([struck("now drop", 15, 15)], False),
        ([struck("now 500", 15, 17)], False),
    ],
)
def test_a_run_too_many_needs_a_fault_that_destroyed_the_first(faults: list[Struck], *, holds: bool) -> None:
    assert (failing(TWICE, *faults) == set()) == holds


def test_a_moment_of_trouble_is_no_reason_to_render_again() -> None:
    found = evidence(
        attempts=[tried(1, "transient", "server"), tried(2, "succeeded")], executions=[ran(1), ran(2)]
    )

    assert failing(found, struck("now 500", 15, 17)) == {"executions", "executions for nothing"}


def test_a_fault_of_one_prompt_is_the_cause_of_one_attempt() -> None:
    found = evidence(
        attempts=[tried(1, "transient", "oom"), tried(2, "transient", "oom"), tried(3, "succeeded")],
        executions=[ran(1, end="error"), ran(2, end="error"), ran(3)],
    )
    once = struck("prompt oom", 5, 30)

    assert "attempts that failed without a cause" in failing(found, once)
    assert failing(found, once, once.model_copy(update={"begun": 6})) == set()


def test_what_destroyed_a_run_is_not_given_to_an_attempt_that_ran_nothing() -> None:
    found = evidence(
        attempts=[tried(1, "transient", "server"), tried(2, "transient", "server"), tried(3, "succeeded")],
        executions=[ran(1), ran(3)],
    )

    assert failing(found, struck("prompt view-404", 9, 25), struck("prompt 503", 9, 25)) == set()


DEAD = evidence(
    jobs=[job(Status.DEAD, reason_class="node failed", reason="node failed: node 3")],
    attempts=[tried(1, "permanent", "node failed")],
    executions=[ran(1, end="error")],
    files=(),
    provenances=(),
)


@pytest.mark.parametrize(("fault", "holds"), [("prompt error", True), ("prompt oom", False)])
def test_a_job_is_dead_for_what_was_done_to_its_server(fault: str, *, holds: bool) -> None:
    assert ("dead for no true reason" not in failing(DEAD, struck(fault, 9, 12))) == holds


@pytest.mark.parametrize(
    ("fault", "holds"),
    [
        (struck("worker full disk", 12, 15), True),
        (struck("worker freeze beyond the lease", -60, 10.5), True),
        (struck("worker freeze beyond the lease", 12, 90), False),
        (struck("worker kill", 12, 12), False),
    ],
)
def test_what_an_owner_left_is_followed_unless_something_destroyed_it(fault: Struck, *, holds: bool) -> None:
    found = evidence(
        attempts=[tried(1, "transient", "given back"), tried(2, "succeeded")], executions=[ran(1), ran(2)]
    )

    assert (failing(found, fault) == set()) == holds


def test_a_server_that_a_worker_did_without_is_read_from_its_log() -> None:
    log = (
        f"100.0 WARNING server left out: {HERE} did not answer: GET /system_stats: refused\n"
        "130.0 -- ended with 3\n"
        f"140.0 WARNING server left out: {THERE} answered what ComfyUI would not\n"
    )
    first, second = left_out_servers({4: log})

    assert (first.server, first.begun, first.over, first.worker) == (HERE, 100.0, 130.0, 4)
    assert (second.server, second.begun, second.over) == (THERE, 140.0, None)
    assert has_cause(first, [struck("server kill", 99, 103)])
    assert not has_cause(second, [struck("server kill", 99, 103)])


async def test_the_disk_of_the_machine_is_never_filled(tmp_path: Path) -> None:
    worker = Worker(0, ["true"], folder=tmp_path, environ={})

    with pytest.raises(RuntimeError, match="machine's own disk"):
        await worker.fill_disk(1.0)

    assert list(worker.state_dir.iterdir()) == []


# --- the storm -------------------------------------------------------------------------------------


@pytest.fixture
def drawn() -> Callable[[int], list[tuple[str, float, int]]]:
    """The first faults of a seed."""

    def draw(seed: int) -> list[tuple[str, float, int]]:
        from random import Random

        storm = Storm(None, Random(seed), FULL)  # type: ignore[arg-type]
        return [(due.kind.name, due.seconds, due.place) for due in (storm._drawn() for _ in range(300))]

    return draw


def test_a_seed_is_a_storm(drawn: Callable[[int], list[tuple[str, float, int]]]) -> None:
    assert drawn(1) == drawn(1) != drawn(2)
    assert {"oom", "kill", "freeze", "drop", "500"} <= {name for name, _, _ in drawn(1)}


def test_the_timetables_have_what_depends_on_no_luck() -> None:
    names = [{kind.name for _, kind, _ in timetable.entries} for timetable in (FULL, SHORT)]

    assert names[0] == {kind.name for kind in (LONG_FREEZE, FULL_DISK)} | {
        "PostgreSQL restarted",
        "Prefect down",
        "RLIMIT_FSIZE",
    }
    assert names[1] == {"PostgreSQL restarted", "RLIMIT_FSIZE", "full disk"}
    assert KILL_SERVER in DRAWN
