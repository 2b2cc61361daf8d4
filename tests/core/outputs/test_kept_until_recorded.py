"""Files of a job stay on this host until the ledger has it that they are stored."""

import hashlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from comfyfarm.cache.places.objects import ObjectPlace
from comfyfarm.clock import SystemClock
from comfyfarm.errors import LedgerError
from comfyfarm.farm.syncing import Syncing
from comfyfarm.ledger.records import OutputFile
from comfyfarm.outputs.collect import Spool

_JOB = "0c6f2c3c-3f06-5f0f-9d6e-6d2a4c1c7c55"


class _Ledger:
    """Does not answer the first time, when all is stored: as if this process had died there."""

    def __init__(self) -> None:
        self.asked = 0

    async def attempts(self, _job_id: str) -> tuple[()]:
        return ()

    async def succeed(self, _claim: object) -> None:
        self.asked += 1
        if self.asked == 1:
            raise LedgerError("gone")


async def test_a_crash_before_the_record_leaves_the_files_and_no_second_copy(
    store: ObjectPlace, seen: ObjectPlace, tmp_path: Path
) -> None:
    spool, datas = Spool(tmp_path / "spool"), {f"sub/{n}.png": f"{n}".encode() * 99 for n in range(5)}
    files = tuple(_spooled(spool, path, data) for path, data in datas.items())
    record = SimpleNamespace(id=_JOB, files=files)
    job: Any = SimpleNamespace(id=_JOB, made_by=None, record=record, claim=None, sure_until=float("inf"))
    ledger: Any = _Ledger()
    work: Any = SimpleNamespace(provenance=lambda *_: b"{}")
    unused: Any = None
    syncing = Syncing(
        work,
        unused,
        is_ours=lambda _job: True,
        ledger=ledger,
        store=store,
        spool=spool,
        pictures=None,
        clock=SystemClock(),
    )

    with pytest.raises(LedgerError):
        await syncing.store(job)
    kept = {path: (spool.folder(job.id) / path).read_bytes() for path in datas}
    before = {one.name: one async for one in seen.list()}
    await syncing.store(job)
    await syncing.tidy(job)

    assert kept == datas
    assert {one.name: one async for one in seen.list(f"{_JOB}/")} == before
    assert {name for name in before if name.endswith(".png")} == {f"{_JOB}/{path}" for path in datas}
    assert list(spool.jobs()) == []


def _spooled(spool: Spool, path: str, data: bytes) -> OutputFile:
    local = spool.folder(_JOB) / path  # type: ignore[arg-type]  # a new type of text
    local.parent.mkdir(parents=True, exist_ok=True)
    local.write_bytes(data)
    return OutputFile(path=path, sha256=hashlib.sha256(data).hexdigest(), size=len(data))
