"""The files of a finished job into the output store, the provenance last: where it lies, all is there."""

from collections.abc import Sequence

from comfyfarm.cache.places.place import Guard, ObjectPlace, PutFile
from comfyfarm.ids import JobId
from comfyfarm.ledger.records import OutputFile
from comfyfarm.outputs.names import PROVENANCE, SpooledFile


async def sync_job(
    store: ObjectPlace, job_id: JobId, files: Sequence[SpooledFile], provenance: bytes, *, guard: Guard
) -> None:
    """Store every file under `<job id>/<path>`, then `<job id>/provenance.json`. Safe to repeat.

    `guard` is called before each, from any thread: a claim that others may have by now is to end it.

    Raises:
        StoreError: a file was not taken, or is no longer as it was collected; the provenance was not written.
    """
    puts = [
        PutFile(name=f"{job_id}/{file.path}", file=file.local, sha256=file.sha256, size=file.size)
        for file in files
    ]
    await store.put_all(puts, (f"{job_id}/{PROVENANCE}", provenance), guard=guard)


async def unsync_job(store: ObjectPlace, job_id: JobId, files: Sequence[OutputFile], *, guard: Guard) -> None:
    """Take away what may have been stored of files that are to be made again: they may get other names.

    The provenance goes first: where it lies, all is there.

    Raises:
        StoreError: a file could not be removed.
    """
    names = (PROVENANCE, *(file.path for file in files))
    await store.remove([f"{job_id}/{name}" for name in names], guard=guard)
