"""The one seam through which the cache changes a disk; tests break it at every step."""

import contextlib
import errno
import os
import stat
from collections.abc import Sequence
from pathlib import Path


class Disk:
    """Plain calls of the operating system, each announced to `step` first. All raise `OSError`."""

    def step(self, what: str, path: Path) -> None:
        """Called before each change, with the method's name. A test counts, raises, or kills here."""

    def make_folder(self, path: Path) -> None:
        """Make a folder and those above it, as far as they are missing."""
        self.step("make_folder", path)
        for _ in range(_TRIES):
            # Who finds one of them empty may remove it, just now.
            with contextlib.suppress(FileNotFoundError):
                try:
                    return path.mkdir(parents=True, exist_ok=True)
                except FileExistsError:
                    if path.is_symlink() or stat.S_ISREG(path.stat().st_mode):
                        raise
        return path.mkdir(parents=True, exist_ok=True)

    def open_file(self, path: Path, flags: int, mode: int = 0o666) -> int:
        """Open for writing, perhaps creating it; the descriptor."""
        self.step("open_file", path)
        return os.open(path, flags | os.O_CLOEXEC, mode)

    def reserve(self, fd: int, size: int, path: Path) -> None:
        """Take room for `size` bytes; where a file system cannot, only the length is set."""
        self.step("reserve", path)
        if not size:
            return
        try:
            os.posix_fallocate(fd, 0, size)
        except (AttributeError, OSError) as exc:
            if isinstance(exc, OSError) and exc.errno not in _CANNOT_RESERVE:
                raise
            os.truncate(fd, size)

    def write_at(self, fd: int, data: Sequence[memoryview] | memoryview | bytes, at: int, path: Path) -> None:
        """Write all of it at this offset."""
        self.step("write_at", path)
        for piece in [data] if isinstance(data, memoryview | bytes) else data:
            view = memoryview(piece)
            while view:
                count = os.pwrite(fd, view, at)
                view, at = view[count:], at + count

    def truncate(self, fd: int, size: int, path: Path) -> None:
        """Cut or lengthen."""
        self.step("truncate", path)
        os.truncate(fd, size)

    def sync(self, fd: int, path: Path) -> None:
        """Make the file's bytes durable."""
        self.step("sync", path)
        os.fsync(fd)

    def sync_data(self, fd: int, path: Path) -> None:
        """Likewise, without what nobody needs to read them back, such as the time of the last write."""
        self.step("sync_data", path)
        getattr(os, "fdatasync", os.fsync)(fd)

    def set_mode(self, fd: int, mode: int, path: Path) -> None:
        """Set its permissions."""
        self.step("set_mode", path)
        os.fchmod(fd, mode)

    def rename(self, path: Path, to: Path) -> None:
        """Give it another name, replacing what has it."""
        self.step("rename", to)
        path.replace(to)

    def unlink(self, path: Path) -> None:
        """Remove a name. One that is not there is as good as removed."""
        self.step("unlink", path)
        path.unlink(missing_ok=True)

    def remove_folder(self, path: Path) -> None:
        """Remove an empty folder."""
        self.step("remove_folder", path)
        path.rmdir()

    def symlink(self, link: Path, target: Path) -> None:
        """Make a symbolic link."""
        self.step("symlink", link)
        link.symlink_to(target)

    def hardlink(self, link: Path, target: Path) -> None:
        """Give a file one more name."""
        self.step("hardlink", link)
        link.hardlink_to(target)

    def sync_folder(self, path: Path) -> None:
        """Make renames and removals in a folder durable."""
        self.step("sync_folder", path)
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


_TRIES = 100
_CANNOT_RESERVE = {errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS}
SYSTEM_DISK = Disk()
