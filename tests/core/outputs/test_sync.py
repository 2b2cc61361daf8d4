"""A job's files first, its provenance last."""

import hashlib
from pathlib import Path

import pytest

from comfyfarm.cache.objects import ObjectPlace
from comfyfarm.errors import StoreError
from comfyfarm.ids import JobId
from comfyfarm.outputs.names import SpooledFile
from comfyfarm.outputs.store import OutputStore
from comfyfarm.outputs.sync import sync_job

_JOB = JobId("0c6f2c3c-3f06-5f0f-9d6e-6d2a4c1c7c55")


def _spooled(tmp_path: Path, path: str, data: bytes) -> SpooledFile:
    local = tmp_path / "spool" / path
    local.parent.mkdir(parents=True, exist_ok=True)
    local.write_bytes(data)
    return SpooledFile(path=path, local=local, sha256=hashlib.sha256(data).hexdigest(), size=len(data))


async def test_all_files_lie_under_the_job_with_their_provenance(
    store: OutputStore, seen: ObjectPlace, tmp_path: Path
) -> None:
    files = [_spooled(tmp_path, f"sub/{n}.png", f"{n}".encode() * 100) for n in range(20)]

    await sync_job(store, _JOB, files, b"{}")
    await sync_job(store, _JOB, files, b"{}")

    assert await seen.read_bytes(f"{_JOB}/provenance.json") == b"{}"
    for n, file in enumerate(files):
        assert await seen.read_bytes(f"{_JOB}/{file.path}") == f"{n}".encode() * 100


async def test_a_missing_file_fails_the_job_and_the_others_are_stored(
    store: OutputStore, seen: ObjectPlace, tmp_path: Path
) -> None:
    lost, kept = _spooled(tmp_path, "lost.png", b"lost"), _spooled(tmp_path, "kept.png", b"kept")
    lost.local.unlink()

    with pytest.raises(StoreError):
        await sync_job(store, _JOB, [lost, kept], b"{}")

    assert await seen.read_bytes(f"{_JOB}/kept.png") == b"kept"
    assert await seen.read_bytes(f"{_JOB}/provenance.json") is None


async def test_a_sync_that_failed_is_finished_by_the_next(
    store: OutputStore, seen: ObjectPlace, tmp_path: Path
) -> None:
    file = _spooled(tmp_path, "late.png", b"late")
    file.local.unlink()
    with pytest.raises(StoreError):
        await sync_job(store, _JOB, [file], b"{}")
    file.local.write_bytes(b"late")

    await sync_job(store, _JOB, [file], b"{}")

    assert await seen.read_bytes(f"{_JOB}/late.png") == b"late"
    assert await seen.read_bytes(f"{_JOB}/provenance.json") == b"{}"
