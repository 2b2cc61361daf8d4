"""Brings the outputs of rendered jobs to their place, each under a claim that nobody else can have."""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from functools import partial

from comfyfarm.cache.places.place import ObjectPlace
from comfyfarm.clock import Clock
from comfyfarm.errors import SpoiledFile, StaleClaim, StoreError
from comfyfarm.farm.leases import Leases
from comfyfarm.farm.pictures import Pictures
from comfyfarm.farm.taken import TakenJob
from comfyfarm.farm.work import Batchwork
from comfyfarm.ledger.ledger import Ledger
from comfyfarm.ledger.records import JobRecord, Status
from comfyfarm.outputs.collect import Spool
from comfyfarm.outputs.names import SpooledFile
from comfyfarm.outputs.sync import sync_job, unsync_job

logger = logging.getLogger(__name__)


class Syncing:
    """Of one batch, from this host's spool to the output store."""

    def __init__(
        self,
        work: Batchwork,
        leases: Leases,
        *,
        is_ours: Callable[[TakenJob], bool],
        ledger: Ledger,
        store: ObjectPlace,
        spool: Spool,
        pictures: Pictures | None,
        clock: Clock,
    ) -> None:
        """`is_ours`: whether a job's claim is still held, as far as the last renewal tells."""
        self._work, self._leases, self._is_ours = work, leases, is_ours
        self._ledger, self._store, self._spool, self._pictures = ledger, store, spool, pictures
        self._clock = clock

    def is_rendered(self, job: TakenJob) -> bool:
        """Whether its files are kept here: those of a host that died must be made again."""
        return job.record.status == Status.RENDERED and all(
            one.local.is_file() and one.local.stat().st_size == one.size for one in self._files(job.record)
        )

    async def store(self, job: TakenJob) -> None:
        """Store the files and the provenance; then, and only then, the job is done.

        Raises:
            StoreError: the place did not take a file; the files stay here.
            StaleClaim: another owner has the job now.
        """
        attempts = (job.made_by,) if job.made_by is not None else await self._ledger.attempts(job.id)
        provenance = self._work.provenance(job.record, attempts)
        files = self._files(job.record)
        try:
            await self._while_ours(job, partial(sync_job, self._store, job.id, files, provenance))
        except SpoiledFile:
            self._spool.clear(job.id)  # whoever goes on collects them anew
            raise
        await self._ledger.succeed(job.claim)

    async def tidy(self, job: TakenJob) -> None:
        """Keep a thumbnail of a job that is done, and its files no longer."""
        if self._pictures is not None:
            await asyncio.to_thread(self._pictures.keep, job.record, self._files(job.record))
        self._spool.clear(job.id)

    async def remove(self, job: TakenJob) -> None:
        """Its files went with the host that had them, perhaps after some of them were stored."""
        try:
            await self._while_ours(job, partial(unsync_job, self._store, job.id, job.record.files))
        except StoreError as exc:
            logger.warning("job %s: what an earlier render stored may stay: %s", job.id, exc)

    async def _while_ours(self, job: TakenJob, work: Callable[..., Awaitable[None]]) -> None:
        """Change what is stored, under a claim that nobody else can have.

        No token guards a folder or a bucket, and this process may have been frozen beyond its lease.

        Raises:
            StaleClaim: another owner has the job now.
        """

        def guard() -> None:
            if self._clock.monotonic() > job.sure_until:
                raise StaleClaim(f"job {job.id}: the claim may be another owner's by now")

        while True:
            with contextlib.suppress(StaleClaim):
                await work(guard=guard)
                return
            await self._leases.renew([job.claim])
            if not self._is_ours(job):
                raise StaleClaim(f"job {job.id} has another owner now")

    def _files(self, record: JobRecord) -> tuple[SpooledFile, ...]:
        folder = self._spool.folder(record.id)
        return tuple(
            SpooledFile(path=one.path, local=folder / one.path, sha256=one.sha256, size=one.size)
            for one in record.files
        )
