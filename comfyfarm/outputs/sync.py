"""The files of a finished job into the output store, the provenance last: where it lies, all is there."""

import asyncio
from collections.abc import Sequence

from comfyfarm.ids import JobId
from comfyfarm.outputs.names import PROVENANCE, SpooledFile
from comfyfarm.outputs.store import OutputStore

FILES_AT_ONCE = 8


async def sync_job(
    store: OutputStore, job_id: JobId, files: Sequence[SpooledFile], provenance: bytes
) -> None:
    """Store every file under `<job id>/<path>`, then `<job id>/provenance.json`. Safe to repeat.

    Raises:
        StoreError: a file was not taken, or is no longer as it was collected; the provenance was not written.
    """
    slots = asyncio.Semaphore(FILES_AT_ONCE)

    async def one(file: SpooledFile) -> None:
        async with slots:
            await store.put(f"{job_id}/{file.path}", file.local, sha256=file.sha256, size=file.size)

    # All get their chance before the first failure is raised: what is stored need not be sent again.
    results = await asyncio.gather(*(one(file) for file in files), return_exceptions=True)
    for result in results:
        if result is not None:
            raise result
    await store.put_bytes(f"{job_id}/{PROVENANCE}", provenance)
