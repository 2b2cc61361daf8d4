"""Files that a command writes for the user: whole, or not at all."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from comfyfarm.errors import UsageError


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """A file beside `path` to write into: at the end it takes that name; when something is raised, it goes.

    Raises:
        UsageError: it cannot be written.
    """
    partial = path.parent / f"{path.name}.partial"
    try:
        yield partial
        partial.replace(path)
    except OSError as exc:
        raise UsageError(f"{path}: cannot be written ({exc.strerror})") from exc
    finally:
        with suppress(OSError):  # as a rule it is not there any more
            partial.unlink()
