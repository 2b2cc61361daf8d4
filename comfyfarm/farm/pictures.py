"""Thumbnails of a batch's outputs, kept on this host so that a run that goes on shows all of them."""

import logging
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

from comfyfarm.ledger.records import JobRecord
from comfyfarm.outputs.contact_sheet import thumbnail
from comfyfarm.outputs.names import SpooledFile

logger = logging.getLogger(__name__)

_KEPT = 200  # more than a contact sheet shows


class Pictures:
    """A small folder for each batch."""

    def __init__(self, state_dir: Path, batch: str) -> None:
        self._folder = state_dir / "pictures" / sha256(batch.encode()).hexdigest()[:16]

    def keep(self, job: JobRecord, files: Sequence[SpooledFile]) -> None:
        """Make a thumbnail of the job's first picture, if the sheet has room for it."""
        try:
            picture = thumbnail(files) if job.position < _KEPT else None
            if picture is not None:
                self._folder.mkdir(parents=True, exist_ok=True)
                (self._folder / f"{job.position:06}-{job.id[:8]}.jpg").write_bytes(picture)
        except Exception as exc:  # noqa: BLE001 - an odd picture or a full disk: the job is done all the same
            logger.warning("no thumbnail of job %s: %s", job.id, exc)

    def load(self) -> tuple[tuple[str, bytes], ...]:
        """Label and JPEG of each, in the order of the batch."""
        files = sorted(self._folder.glob("*.jpg")) if self._folder.is_dir() else []
        return tuple((file.stem.partition("-")[2], file.read_bytes()) for file in files)
