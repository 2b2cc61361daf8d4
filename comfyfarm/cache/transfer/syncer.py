"""Makes what has been written durable, and journals it: a thread, for which no connection waits."""

import logging
import threading
from collections.abc import Sequence

from comfyfarm.cache.disk import Disk
from comfyfarm.cache.transfer.chunks import ChunkMap
from comfyfarm.cache.transfer.direct import DirectFile
from comfyfarm.cache.transfer.journal import Journal
from comfyfarm.cache.transfer.trouble import Trouble

_log = logging.getLogger(__name__)

SYNC_BYTES = 128 << 20
SYNC_S = 5.0
"""A crash costs so much at most, whichever is less."""


class Syncer:
    """Journals one file every 128 MiB or 5 s."""

    def __init__(
        self, file: DirectFile, journal: Journal, *, size: int, disk: Disk, trouble: Trouble
    ) -> None:
        self._file = file
        self._journal = journal
        self._size = size
        self._disk = disk
        self._trouble = trouble
        self._due = threading.Condition()
        self._new = ChunkMap(size)
        self._new_bytes = 0
        self._is_ended = False
        self._round = threading.Lock()
        self._is_folder_durable = False
        self._is_sync_lost = False
        self._thread = threading.Thread(target=self._run, name="sync", daemon=True)

    def start(self) -> None:
        """Begin to wait for bytes."""
        self._thread.start()

    def wrote(self, at: int) -> None:
        """The chunk at this offset has been written."""
        with self._due:
            before = self._new_bytes
            self._new.mark(range(at, at + 1))
            self._new_bytes += self._new.length(at)
            if not before or before < SYNC_BYTES <= self._new_bytes:
                self._due.notify()

    def lose(self, ranges: Sequence[range]) -> None:
        """These are to come anew.

        Raises:
            OSError: the journal cannot be written.
        """
        with self._round:
            with self._due:
                for each in ranges:
                    self._new.mark(each, here=False)
            self._journal.append("lost", ranges)

    def flush(self) -> None:
        """Journal all that has been written until now.

        Raises:
            OSError: it cannot be made durable, now or earlier: then the journal stays as it was.
        """
        with self._round:
            with self._due:
                ranges = self._new.ranges(here=True)
                self._new = ChunkMap(self._size)
                self._new_bytes = 0
            if ranges and not self._is_sync_lost:
                self._sync()
                self._journal.append("here", ranges)

    def end(self) -> None:
        """Stop the thread, and wait until it is gone. What is not in the journal yet stays out of it."""
        with self._due:
            self._is_ended = True
            self._due.notify()
        if self._thread.ident is not None:
            self._thread.join()

    def _sync(self) -> None:
        try:
            self._file.sync_data()
            if not self._is_folder_durable:
                self._disk.sync_folder(self._file.path.parent)
                self._is_folder_durable = True
        except OSError:
            # The system tells of lost bytes once; a second call would succeed without them.
            self._is_sync_lost = True
            raise

    def _run(self) -> None:
        try:
            while self._wait():
                self.flush()
        except Exception as exc:  # noqa: BLE001 - told to everyone, as nothing is durable from here on
            self._trouble.report(exc, self._file.path)

    def _wait(self) -> bool:
        with self._due:
            self._due.wait_for(lambda: self._is_ended or self._new_bytes)
            self._due.wait_for(lambda: self._is_ended or self._new_bytes >= SYNC_BYTES, timeout=SYNC_S)
            return not self._is_ended
