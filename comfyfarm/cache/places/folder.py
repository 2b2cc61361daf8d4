"""A folder as a place: files appear in it whole and durable, under their names, or not at all."""

import asyncio
import contextlib
import errno
import hashlib
import os
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

from comfyfarm.addresses import expanded
from comfyfarm.cache.disk import SYSTEM_DISK, Disk
from comfyfarm.cache.places.place import Guard, Listed, Mode, ObjectPlace, PutFile
from comfyfarm.cache.temporary import TemporaryFile, open_temporary
from comfyfarm.errors import SpoiledFile, StoreError

_T = TypeVar("_T")

COPY_BYTES = 4 << 20
PARTIAL = ".partial-"
"""How the names of temporaries begin."""
_NO_LINKS = {errno.EXDEV, errno.EPERM, errno.EMLINK, errno.ENOTSUP, errno.ENOSYS, errno.EACCES}
"""Another file system, or one without links."""


class FolderPlace(ObjectPlace):
    """Files under `root`. A temporary lies beside what it becomes, as `.partial-…`."""

    def __init__(self, root: Path, *, disk: Disk = SYSTEM_DISK) -> None:
        self._disk = disk
        self.root = expanded(root).absolute()
        self.address = str(self.root)

    async def check_writable(self) -> None:
        """Raise what a write would: `StoreError`."""

        def work(_name: str) -> None:
            open_temporary(self.root, prefix=PARTIAL, levels=1, disk=self._disk).discard()

        await self._try(work, "")

    def path(self, name: str) -> Path:
        """Where the file of this name lies; the root itself for the empty name."""
        return self.root / name if name else self.root

    async def size_of(self, name: str) -> int | None:
        """Size in bytes of a file; None when there is none."""
        return await self._try(self._size_of, name)

    async def read_bytes(self, name: str) -> bytes | None:
        """A small file; None when there is none."""
        return await self._try(self._read, name)

    async def put_bytes(self, name: str, data: bytes) -> None:
        """Write a small file, whole or not at all, replacing what is there."""
        await self._try(lambda name: self._write(name, data), name)

    async def put_file(
        self,
        put: PutFile,
        *,
        mode: Mode,
        part_sha256: tuple[str, ...] = (),
        on_bytes: Callable[[int], None] | None = None,
    ) -> bool:
        """Copy a file, and hash the copy. The same bytes under the name are left as they are."""
        del part_sha256
        return await self._try(lambda _name: self._copy(put, mode, on_bytes), put.name)

    async def remove(self, names: Sequence[str], *, guard: Guard) -> None:
        """Remove files, and folders that are empty then."""

        def work() -> None:
            for name in names:
                guard()
                with self._errors(name):
                    self._disk.unlink(self.path(name))
                with contextlib.suppress(OSError):
                    for folder in list(self.path(name).parents)[: name.count("/")]:
                        self._disk.remove_folder(folder)

        await asyncio.to_thread(work)

    async def put_all(self, files: Sequence[PutFile], last: tuple[str, bytes], *, guard: Guard) -> None:
        """Link or write files and then a small one, all in one thread: most are small."""

        def work() -> None:
            failed: StoreError | None = None
            for put in files:
                guard()
                try:
                    with self._errors(put.name):
                        if not self._link(put):
                            self._copy(put, "overwrite", None)
                except StoreError as exc:
                    failed = failed or exc
            if failed is not None:
                raise failed
            guard()
            with self._errors(last[0]):
                if self._read(last[0]) != last[1]:
                    self._write(*last)

        await asyncio.to_thread(work)

    async def list(self, prefix: str = "") -> AsyncIterator[Listed]:
        """Files whose names begin with `prefix`, which is empty or ends with `/`; in no order."""
        for found in await self._try(self._list, prefix):
            yield found

    def _list(self, prefix: str) -> tuple[Listed, ...]:
        found = []
        for folder, _, names in os.walk(self.path(prefix.rstrip("/"))):
            for name in names:
                path = Path(folder, name)
                with contextlib.suppress(FileNotFoundError):  # somebody removes it just now
                    if not name.startswith(PARTIAL):
                        about = path.stat()
                        modified = datetime.fromtimestamp(about.st_mtime, UTC)
                        found.append(Listed(str(path.relative_to(self.root)), about.st_size, modified))
        return tuple(found)

    def _write(self, name: str, data: bytes) -> None:
        temporary = self._temporary(name)
        try:
            self._disk.write_at(temporary.fd, data, 0, temporary.path)
            temporary.publish(self.path(name))
        finally:
            temporary.discard()

    def _link(self, put: PutFile) -> bool:
        """Give a file that nobody changes any more its name here as well; False where it must be copied.

        It halves what is written, and videos are large.
        """
        final = self.path(put.name)
        with put.file.open("rb", buffering=0) as file:
            _check(put, hashlib.file_digest(file, "sha256").hexdigest())
            os.fsync(file.fileno())
        try:
            self._disk.make_folder(final.parent)
            if _has_rules(final.parent, put.file):
                return False
            self._disk.hardlink(final, put.file)
        except (FileExistsError, FileNotFoundError):
            return False
        except OSError as exc:
            if exc.errno in _NO_LINKS:
                return False
            raise
        self._disk.sync_folder(final.parent)
        return True

    def _copy(self, put: PutFile, mode: Mode, on_bytes: Callable[[int], None] | None) -> bool:
        final = self.path(put.name)
        if self._size_of(put.name) == put.size and (mode == "create" or hash_file(final) == put.sha256):
            return False
        temporary = self._temporary(put.name)
        try:
            self._fill(temporary, put.file, on_bytes)
            # Of the copy, as its disk has it: the bytes of the source are only what they were read as.
            self._disk.sync(temporary.fd, temporary.path)
            _check_copy(put, hash_file(temporary.path))
            temporary.publish(final)
        finally:
            temporary.discard()
        return True

    def _fill(self, temporary: TemporaryFile, source: Path, on_bytes: Callable[[int], None] | None) -> None:
        at = 0
        with source.open("rb", buffering=0) as file:
            while data := file.read(COPY_BYTES):
                self._disk.write_at(temporary.fd, data, at, temporary.path)
                at += len(data)
                if on_bytes is not None:
                    on_bytes(len(data))

    def _temporary(self, name: str) -> TemporaryFile:
        folder, levels = self.path(name).parent, name.count("/")
        return open_temporary(folder, prefix=PARTIAL, levels=levels, disk=self._disk)

    def _size_of(self, name: str) -> int | None:
        try:
            return self.path(name).stat().st_size
        except FileNotFoundError:
            return None

    def _read(self, name: str) -> bytes | None:
        try:
            return self.path(name).read_bytes()
        except FileNotFoundError:
            return None

    async def _try(self, work: Callable[[str], _T], name: str) -> _T:
        with self._errors(name):
            return await asyncio.to_thread(work, name)

    @contextmanager
    def _errors(self, name: str) -> Iterator[None]:
        try:
            yield
        except OSError as exc:
            # The temporary's own name says nothing to anyone.
            ours = str(exc.filename or "").startswith(str(self.root)) or not exc.filename
            at = self.path(name) if ours else exc.filename
            raise StoreError(f"{at}: {exc.strerror or exc}") from exc


def _check(put: PutFile, sha256: str) -> None:
    if sha256 != put.sha256:
        raise SpoiledFile(f"{put.file}: no longer the bytes that were recorded for {put.name}")


def _check_copy(put: PutFile, sha256: str) -> None:
    if sha256 != put.sha256:
        _check(put, hash_file(put.file))
        raise OSError(errno.EIO, "other bytes came than were written")


def _has_rules(folder: Path, file: Path) -> bool:
    """Whether a file made in the folder would get another group, or rights of the folder's own."""
    if folder.stat().st_gid != file.stat().st_gid:
        return True
    try:
        return "system.posix_acl_default" in os.listxattr(folder)
    except (AttributeError, OSError):  # no such thing on this system, or on this file system
        return False


def hash_file(path: Path) -> str:
    """SHA-256 of a whole file, in hexadecimal.

    Raises:
        OSError: it cannot be read.
    """
    with path.open("rb", buffering=0) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
