"""A job's files first, its provenance last."""

import hashlib
from pathlib import Path

import pytest

from comfyfarm.cache.places.objects import ObjectPlace
from comfyfarm.errors import StaleClaim, StoreError
from comfyfarm.ids import JobId
from comfyfarm.ledger.records import OutputFile
from comfyfarm.outputs.names import SpooledFile
from comfyfarm.outputs.sync import sync_job, unsync_job

_JOB = JobId("0c6f2c3c-3f06-5f0f-9d6e-6d2a4c1c7c55")


def _nothing() -> None:
    """Nobody else has the job."""


def _spooled(tmp_path: Path, path: str, data: bytes) -> SpooledFile:
    local = tmp_path / "spool" / path
    local.parent.mkdir(parents=True, exist_ok=True)
    local.write_bytes(data)
    return SpooledFile(path=path, local=local, sha256=hashlib.sha256(data).hexdigest(), size=len(data))


async def test_all_files_lie_under_the_job_with_their_provenance(
    store: ObjectPlace, seen: ObjectPlace, tmp_path: Path
) -> None:
    files = [_spooled(tmp_path, f"sub/{n}.png", f"{n}".encode() * 100) for n in range(20)]

    await sync_job(store, _JOB, files, b"{}", guard=_nothing)
    await sync_job(store, _JOB, files, b"{}", guard=_nothing)

    assert await seen.read_bytes(f"{_JOB}/provenance.json") == b"{}"
    for n, file in enumerate(files):
        assert await seen.read_bytes(f"{_JOB}/{file.path}") == f"{n}".encode() * 100


async def test_a_missing_file_fails_the_job_and_the_others_are_stored(
    store: ObjectPlace, seen: ObjectPlace, tmp_path: Path
) -> None:
    lost, kept = _spooled(tmp_path, "lost.png", b"lost"), _spooled(tmp_path, "kept.png", b"kept")
    lost.local.unlink()

    with pytest.raises(StoreError):
        await sync_job(store, _JOB, [lost, kept], b"{}", guard=_nothing)

    assert await seen.read_bytes(f"{_JOB}/kept.png") == b"kept"
    assert await seen.read_bytes(f"{_JOB}/provenance.json") is None


async def test_a_sync_that_failed_is_finished_by_the_next(
    store: ObjectPlace, seen: ObjectPlace, tmp_path: Path
) -> None:
    file = _spooled(tmp_path, "late.png", b"late")
    file.local.unlink()
    with pytest.raises(StoreError):
        await sync_job(store, _JOB, [file], b"{}", guard=_nothing)
    file.local.write_bytes(b"late")

    await sync_job(store, _JOB, [file], b"{}", guard=_nothing)

    assert await seen.read_bytes(f"{_JOB}/late.png") == b"late"
    assert await seen.read_bytes(f"{_JOB}/provenance.json") == b"{}"


async def test_an_owner_that_may_have_lost_its_claim_stores_nothing_more(
    store: ObjectPlace, seen: ObjectPlace, tmp_path: Path
) -> None:
    files = [_spooled(tmp_path, f"{n}.png", f"{n}".encode()) for n in range(3)]
    asked: list[int] = []

    def guard() -> None:
        asked.append(len(asked))
        if len(asked) > len(files):
            raise StaleClaim("another owner has the job now")

    with pytest.raises(StaleClaim):
        await sync_job(store, _JOB, files, b"{}", guard=guard)

    assert await seen.read_bytes(f"{_JOB}/2.png") == b"2"
    assert await seen.read_bytes(f"{_JOB}/provenance.json") is None


async def test_what_is_made_again_is_taken_away_first(
    store: ObjectPlace, seen: ObjectPlace, tmp_path: Path
) -> None:
    files = [_spooled(tmp_path, f"sub/{n}.png", b"x") for n in range(3)]
    made = [OutputFile(path=file.path, sha256=file.sha256, size=file.size) for file in files]
    await sync_job(store, _JOB, files[:2], b"{}", guard=_nothing)
    await sync_job(store, JobId("another"), files[:1], b"{}", guard=_nothing)

    for _ in range(2):
        await unsync_job(store, _JOB, made, guard=_nothing)

    assert [await seen.read_bytes(f"{_JOB}/{file.path}") for file in files] == [None] * 3
    assert await seen.read_bytes(f"{_JOB}/provenance.json") is None
    assert await seen.read_bytes("another/sub/0.png") == b"x"
