"""Whether every job was done exactly once, or is dead for a true reason. Pure."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from comfyfarm.ledger.records import JobRecord
from comfyfarm.outputs.names import PROVENANCE
from infra.chaos.batch import Planned
from infra.chaos.causes import true_reasons
from infra.chaos.evidence import Evidence, Kept, Said
from infra.chaos.executions import executions
from infra.chaos.fault_log import Struck
from infra.chaos.figures import Figure, all_of, none_of, told


def verdict(planned: Sequence[Planned], evidence: Evidence, faults: Sequence[Struck]) -> tuple[Figure, ...]:
    """All figures, from what is left when the batch is over."""
    return (
        *_ends(planned, evidence, faults),
        *_files(planned, evidence),
        *executions(evidence, faults),
    )


def _ends(planned: Sequence[Planned], evidence: Evidence, faults: Sequence[Struck]) -> Iterator[Figure]:
    status = {str(job.id): str(job.status) for job in evidence.jobs}
    unfinished = [
        f"{job.id} {status.get(job.id, 'is not in the ledger')}"
        for job in planned
        if status.get(job.id) not in {"succeeded", "dead"}
    ]
    yield all_of("jobs finished", unfinished, count=len(planned))
    yield told("jobs succeeded", sum(job.status == "succeeded" for job in evidence.jobs))
    dead = [job for job in evidence.jobs if job.status == "dead"]
    yield told("jobs dead", dict(Counter(str(job.reason_class) for job in dead)))
    untrue = [job for job in dead if not _is_true(job, evidence, faults)]
    yield none_of("dead for no true reason", map(_said, untrue))
    yield none_of("jobs without exactly one success", _not_once(evidence))


def _is_true(job: JobRecord, evidence: Evidence, faults: Sequence[Struck]) -> bool:
    return job.reason_class in true_reasons(evidence.attempts_of(job.id), faults)


def _said(job: JobRecord) -> str:
    return f"{job.id}: {job.reason}"


def _not_once(evidence: Evidence) -> Iterator[str]:
    """Succeeded jobs have one attempt that succeeded, and none after it; dead ones have none."""
    for job in evidence.jobs:
        verdicts = [one.verdict for one in evidence.attempts_of(job.id)]
        wanted = 1 if job.status == "succeeded" else 0
        if verdicts.count("succeeded") != wanted or (wanted and verdicts[-1] != "succeeded"):
            yield f"{job.id} {job.status}: {verdicts}"


def _files(planned: Sequence[Planned], evidence: Evidence) -> Iterator[Figure]:
    kept = {file.path: file for file in evidence.files}
    counts = {job.id: job.files for job in planned}
    done = [job for job in evidence.jobs if job.status == "succeeded"]
    expected = {f"{job.id}/{PROVENANCE}" for job in done}
    expected |= {f"{job.id}/{file.path}" for job in done for file in job.files}
    yield told("files", len(kept))
    yield none_of("files missing", sorted(expected - kept.keys()))
    yield none_of("files that nothing knows of", sorted(kept.keys() - expected))
    yield none_of("files with other bytes than the ledger's", _spoiled(done, kept))
    yield none_of(
        "jobs with too many or too few files",
        (f"{job.id}: {len(job.files)}" for job in done if len(job.files) != counts.get(job.id)),
    )
    said = {one.job: one for one in evidence.provenances}
    yield none_of("provenances that say otherwise", _otherwise(done, said))
    twice = Counter((file.path.partition("/")[0], file.sha256) for file in kept.values() if file.of_job)
    yield none_of("pictures twice", (f"{job} {sha}" for (job, sha), count in twice.items() if count > 1))


def _otherwise(done: Iterable[JobRecord], said: Mapping[str, Said]) -> Iterator[str]:
    for job in done:
        files = tuple(sorted((file.path, file.sha256) for file in job.files))
        wanted = Said(job=job.id, attempts=job.attempts, files=files)
        if job.id in said and said[job.id] != wanted:
            yield f"{job.id}: {said[job.id]}, not {wanted}"


def _spoiled(done: Iterable[JobRecord], kept: Mapping[str, Kept]) -> Iterator[str]:
    for job in done:
        for file in job.files:
            found = kept.get(f"{job.id}/{file.path}")
            if found is None:
                continue
            if (found.sha256, found.size) != (file.sha256, file.size):
                yield found.path
            elif found.of_job != job.id:
                yield f"{found.path} is of job {found.of_job}"
