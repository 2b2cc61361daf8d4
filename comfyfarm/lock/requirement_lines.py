"""The Python requirements of a node pack, line by line; nothing of the pack is run.

As ComfyUI-Manager installs them: `requirements.txt`, and where there is none the dependencies in
`pyproject.toml`. What cannot be solved together with other packs is left out and said.
"""

import hashlib
import posixpath
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from comfyfarm.lock.checkouts import show
from comfyfarm.lock.regular_file import read_regular
from comfyfarm.lock.requirement_text import decoded, logical_lines, shown
from comfyfarm.workflow.findings import Finding, error, warning

LIMIT_BYTES: Final = 1024 * 1024
_MOST_INCLUDES = 20
_COMPARE = r"(?:===|==|~=|!=|<=|>=|<|>)\s*[\w.*+!-]+"
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")
_REQUIREMENT = re.compile(
    rf"(?P<name>{_NAME.pattern})\s*(?:\[[\w\s,.-]*\])?\s*"
    rf"\(?\s*(?:{_COMPARE}(?:\s*,\s*{_COMPARE})*\s*,?)?\s*\)?\s*(?:;.*)?"
)
_HASH = re.compile(r"\s--hash[=\s]\S+")
_INCLUDE = re.compile(r"(?:-r|--requirement)(?:\s+|=)?(?P<path>\S.*)")
_ADDRESS = re.compile(r"(?:[a-z][a-z0-9+]*://|git\+|\.{0,2}/|[A-Za-z]:\\)", re.IGNORECASE)

Reader = Callable[[str], "bytes | None"]
"""Gives the content of a file of the pack by its path with `/`; None when it has none of that name."""


@dataclass(frozen=True, slots=True)
class RequirementLine:
    """One requirement, and who has it."""

    pack: str
    text: str
    """As pip takes it, such as `numpy<2; sys_platform == "linux"`."""
    file: str
    line: int

    @property
    def name(self) -> str:
        """What it requires, in the form that indexes compare."""
        found = _NAME.match(self.text)
        return re.sub(r"[-_.]+", "-", found[0]).lower() if found is not None else ""

    def __str__(self) -> str:
        return f"{self.pack} requires {self.text} ({self.file}:{self.line})"


@dataclass(frozen=True, slots=True)
class PackRequirements:
    """All requirements of one pack, or of ComfyUI itself."""

    pack: str
    lines: tuple[RequirementLine, ...] = ()
    unsolved: tuple[str, ...] = ()
    """Requirements by address, without their logins: they are installed as they are."""
    digests: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """SHA-256 of each file that was read."""
    findings: tuple[Finding, ...] = ()


def folder_reader(folder: Path) -> Reader:
    """Reads the files of a pack as they lie there, never one outside of it."""
    root = folder.resolve()

    def read(path: str) -> bytes | None:
        file = (root / path).resolve()
        if not file.is_relative_to(root):
            return None
        try:
            return read_regular(file, limit_bytes=LIMIT_BYTES + 1)
        except OSError:
            return None

    return read


def commit_reader(folder: Path, commit: str) -> Reader:
    """Reads the files of a checkout as they are at a commit, whatever is checked out."""
    return lambda path: show(folder, commit, path)


def read_requirements(read: Reader, *, pack: str) -> PackRequirements:
    """The requirements of a pack, through one of the readers above."""
    return _Reading(read, pack).result()


class _Reading:
    """Collects over the files of one pack."""

    def __init__(self, read: Reader, pack: str) -> None:
        self._read = read
        self._pack = pack
        self._lines: list[RequirementLine] = []
        self._unsolved: list[str] = []
        self._digests: dict[str, str] = {}
        self._findings: list[Finding] = []

    def result(self) -> PackRequirements:
        if not self._file("requirements.txt"):
            self._project()
        return PackRequirements(
            self._pack,
            tuple(self._lines),
            tuple(self._unsolved),
            MappingProxyType(self._digests),
            tuple(self._findings),
        )

    def _file(self, start: str) -> bool:
        ahead = [start]
        while ahead:
            path = ahead.pop()
            text = self._text(path)
            if text is not None:
                rows = list(logical_lines(text))
                ahead.extend(reversed([target for row in rows for target in self._line(path, *row)]))
        return bool(self._digests)

    def _text(self, path: str) -> str | None:
        if path in self._digests or len(self._digests) >= _MOST_INCLUDES:
            return None
        data = self._read(path)
        if data is None:
            return None
        if len(data) > LIMIT_BYTES:
            self._note(path, 1, "is larger than any list of requirements")
            return None
        self._digests[path] = hashlib.sha256(data).hexdigest()
        return decoded(data)

    def _line(self, path: str, number: int, text: str) -> Iterator[str]:
        """Take in one line; gives the file that it includes."""
        include = _INCLUDE.fullmatch(text)
        if include is not None:
            yield from self._include(path, number, include["path"].strip("\"'"))
        elif text.startswith("-"):
            self._option(path, number, text)
        else:
            self._requirement(path, number, _HASH.sub("", text).strip())

    def _include(self, path: str, number: int, target: str) -> Iterator[str]:
        inside = posixpath.normpath(posixpath.join(posixpath.dirname(path), target.replace("\\", "/")))
        if inside.startswith(("../", "/")) or inside == ".." or self._read(inside) is None:
            self._note(path, number, f"includes {shown(target)!r}, which is no file of the pack")
            return
        yield inside

    def _option(self, path: str, number: int, text: str) -> None:
        self._findings.append(
            warning(
                "requirement_option",
                f"{self._pack}: {path}:{number}: the option {shown(text)!r} is not followed",
                "give the index or folder when the lock is made, if the pack needs one",
            )
        )

    def _requirement(self, path: str, number: int, text: str) -> None:
        name, at, address = text.partition("@")
        if _ADDRESS.match(text) or (at and _NAME.fullmatch(re.sub(r"\[.*", "", name).strip()) and address):
            self._address(path, number, text)
        elif _REQUIREMENT.fullmatch(text):
            self._lines.append(RequirementLine(self._pack, text, path, number))
        else:
            self._note(path, number, f"{shown(text)!r} is no requirement")

    def _address(self, path: str, number: int, text: str) -> None:
        kept = shown(text)
        self._unsolved.append(kept)
        self._findings.append(
            warning(
                "requirement_from_url",
                f"{self._pack}: {path}:{number}: {kept!r} is installed from an address, so it is neither "
                "solved together with the others nor pinned",
                "check that what it needs agrees with the solved versions",
            )
        )

    def _note(self, path: str, number: int, what: str) -> None:
        self._findings.append(
            warning(
                "bad_requirement",
                f"{self._pack}: {path}:{number}: {what}; it is left out",
                "mend the line in the pack, or take another commit of it",
            )
        )

    def _project(self) -> None:
        text = self._text("pyproject.toml")
        if text is None:
            return
        try:
            project = tomllib.loads(text).get("project")
        except (tomllib.TOMLDecodeError, RecursionError):
            self._note("pyproject.toml", 1, "is no TOML")
            return
        for item in _dependencies(project):
            self._requirement("pyproject.toml", _line_of(text, item), item.strip())


def broken_line(line: RequirementLine, reason: str) -> Finding:
    """A line that uv refuses."""
    return warning(
        "bad_requirement",
        f"{line.pack}: {line.file}:{line.line}: {shown(line.text)!r} is no requirement ({reason}); "
        "it is left out",
        "mend the line in the pack, or take another commit of it",
    )


def unsatisfied(line: RequirementLine, reason: str) -> Finding:
    """A line that no version meets, whatever the others want."""
    return error(
        "requirement_unsatisfied",
        f"{line}, which nothing meets: {reason}",
        "give an index or wheelhouse that has it for this Python and platform, or another commit of the pack",
    )


def _dependencies(project: Any) -> Iterator[str]:
    listed = project.get("dependencies") if isinstance(project, dict) else None
    return (item for item in listed if isinstance(item, str)) if isinstance(listed, list) else iter(())


def _line_of(text: str, item: str) -> int:
    place = text.find(item)
    return 1 if place < 0 else text.count("\n", 0, place) + 1
