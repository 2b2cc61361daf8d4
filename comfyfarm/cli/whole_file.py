"""Files that a command writes for the user: whole, or not at all."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from comfyfarm.errors import UsageError


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """A file beside `path` to write into: at the end it takes that name; when something is raised, it goes.

    Behind a link it is the link's target; a device or pipe is written to, since nothing can take its place.

    Raises:
        UsageError: it cannot be written.
    """
    target = path.resolve()
    is_plain = target.is_file() or not target.exists()
    if not is_plain and not target.is_dir():
        with _written_through(target) as partial:
            yield partial
        return
    partial = target.parent / f"{target.name}.partial"
    try:
        yield partial
        partial.replace(target)
    except OSError as exc:
        raise UsageError(f"{path}: cannot be written ({exc.strerror})") from exc
    finally:
        with suppress(OSError):  # as a rule it is not there any more
            partial.unlink()


@contextmanager
def _written_through(target: Path) -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        partial = Path(folder) / "whole"
        yield partial
        try:
            with partial.open("rb") as whole, target.open("wb") as place:
                shutil.copyfileobj(whole, place)
        except OSError as exc:
            raise UsageError(f"{target}: cannot be written ({exc.strerror})") from exc
