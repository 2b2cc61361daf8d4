"""The files of a finished job into the output store, the provenance last: where it lies, all is there."""

from collections.abc import Sequence

from comfyfarm.cache.place import PutFile
from comfyfarm.ids import JobId
from comfyfarm.outputs.names import PROVENANCE, SpooledFile
from comfyfarm.outputs.store import OutputStore


async def sync_job(
    store: OutputStore, job_id: JobId, files: Sequence[SpooledFile], provenance: bytes
) -> None:
    """Store every file under `<job id>/<path>`, then `<job id>/provenance.json`. Safe to repeat.

    Raises:
        StoreError: a file was not taken, or is no longer as it was collected; the provenance was not written.
    """
    puts = [
        PutFile(name=f"{job_id}/{file.path}", file=file.local, sha256=file.sha256, size=file.size)
        for file in files
    ]
    await store.put_all(puts, (f"{job_id}/{PROVENANCE}", provenance))
