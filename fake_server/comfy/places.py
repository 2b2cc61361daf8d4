"""The server's own folders, names like `picture.png [output]`, and the name a save node takes next."""

import os.path
import re
import time
from pathlib import Path

from pydantic import BaseModel, ConfigDict

_ANNOTATION = re.compile(r" ?\[(output|input|temp)\]$")


class Places(BaseModel):
    """Where the server reads and writes files."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    input_dir: Path
    output_dir: Path
    temp_dir: Path

    def by_type(self, kind: str) -> Path | None:
        """The folder of `input`, `output` or `temp`; None for any other word."""
        return {"input": self.input_dir, "output": self.output_dir, "temp": self.temp_dir}.get(kind)

    def annotated(self, name: str) -> tuple[str, Path | None]:
        """The plain name, and the folder that a `[type]` at its end asks for, if there is one."""
        match = _ANNOTATION.search(name)
        if match is None:
            return name, None
        return name[: match.start()], self.by_type(match[1])

    def input_file(self, name: str) -> Path:
        """Where a loader looks for the file that one of its inputs names."""
        plain, folder = self.annotated(name)
        return (folder or self.input_dir) / plain

    def listing(self) -> list[str]:
        """The names of the files directly in the input folder, as the loaders' combos show them."""
        if not self.input_dir.is_dir():
            return []
        return sorted(path.name for path in self.input_dir.iterdir() if path.is_file())


class SaveSlot(BaseModel):
    """The folder, the name and the first free number for a save node's files."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    folder: Path
    name: str
    counter: int
    subfolder: str


def save_slot(prefix: str, root: Path, *, width: int = 0, height: int = 0) -> SaveSlot:
    """Take apart a `filename_prefix` and find the next free counter.

    Raises:
        Exception: the prefix leaves the root folder; with the real server's type and text.

    Source: [rec: accepted_oddities, output_save_prefix_*] of ComfyUI 0.27.
    """
    clean = Path(_normal(_filled(prefix, width, height)))
    name = clean.name or "."  # of an empty prefix, as there
    subfolder = "" if str(clean.parent) == "." else clean.parent.as_posix()
    folder = Path(_normal(str(root / subfolder)))
    if not folder.is_relative_to(root):
        raise Exception(_outside(folder, root))
    return SaveSlot(folder=folder, name=name, counter=_next(folder, name), subfolder=subfolder)


def _normal(path: str) -> str:
    return os.path.normpath(path)  # pathlib has no such thing, and resolve() follows links


def _next(folder: Path, name: str) -> int:
    # A folder that is not there is made here, as the real one does while it looks for the number.
    if not folder.exists():
        folder.mkdir(parents=True)
    used = re.compile(re.escape(name) + r"_(\d+)")
    numbers = [int(match[1]) for path in folder.iterdir() if (match := used.match(path.name))]
    return max(numbers, default=0) + 1


def _filled(prefix: str, width: int, height: int) -> str:
    if "%" not in prefix:
        return prefix
    now = time.localtime()
    words = {
        "width": str(width),
        "height": str(height),
        "year": str(now.tm_year),
        "month": f"{now.tm_mon:02}",
        "day": f"{now.tm_mday:02}",
        "hour": f"{now.tm_hour:02}",
        "minute": f"{now.tm_min:02}",
        "second": f"{now.tm_sec:02}",
    }
    for word, text in words.items():
        prefix = prefix.replace(f"%{word}%", text)
    return prefix


def _outside(folder: Path, root: Path) -> str:
    common = _common(folder, root)
    return (
        "**** ERROR: Saving image outside the output folder is not allowed.\n"
        f" full_output_folder: {folder}\n         output_dir: {root}\n         commonpath: {common}"
    )


def _common(one: Path, other: Path) -> Path:
    return next(parent for parent in (one, *one.parents) if other.is_relative_to(parent))
