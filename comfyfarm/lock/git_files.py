"""A checkout's address and HEAD, read from git's own files."""

import logging
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from comfyfarm.lock.regular_file import has_special, read_regular

logger = logging.getLogger(__name__)

_LIMIT_BYTES: Final = 16 * 1024 * 1024
_COMMIT = re.compile(r"[0-9a-f]{40}")
_SECTION = re.compile(r'\[\s*remote\s+"([^"]*)"\s*\]')
_URL = re.compile(r'url\s*=\s*"?([^"#;\s]+)')
_MOST_HOPS = 5


@dataclass(frozen=True, slots=True)
class GitFolder:
    """Where git keeps its files of a checkout."""

    own: Path
    """Of this checkout: HEAD."""
    common: Path
    """Of all worktrees of the repository: configuration and refs."""

    def remote_url(self) -> str | None:
        """The address of `origin`, else of the first remote."""
        remotes = dict(self._remotes())
        return remotes.get("origin") or next(iter(remotes.values()), None)

    def head(self) -> str | None:
        """The commit that is checked out; None when the files do not say."""
        name = "HEAD"
        for _ in range(_MOST_HOPS):
            text = self._ref(name)
            if _COMMIT.fullmatch(text):
                return text
            target = text.removeprefix("ref: ").strip()
            if target == text or not target.startswith("refs/") or ".." in target.split("/"):
                return None
            name = target
        return None

    def _ref(self, name: str) -> str:
        loose = _read(self.own / name) or _read(self.common / name)
        return loose.strip() or self._packed(name)

    def _packed(self, name: str) -> str:
        for line in _read(self.common / "packed-refs").splitlines():
            commit, _, ref = line.partition(" ")
            if ref == name:
                return commit
        return ""

    def _remotes(self) -> Iterator[tuple[str, str]]:
        name: str | None = None
        for line in map(str.strip, _read(self.common / "config").splitlines()):
            if line.startswith("["):
                section = _SECTION.match(line)
                name = section[1] if section is not None else None
            elif name is not None and (url := _URL.match(line)) is not None:
                yield name, url[1]


def find_git(folder: Path) -> GitFolder | None:
    """Git's folder of a checkout: `.git`, or where that file points (a worktree or submodule).

    None as well where a FIFO or a device lies in it, at which git itself would wait.
    """
    own = folder / ".git"
    if own.is_file():
        target = _read(own).strip().removeprefix("gitdir:").strip()
        own = folder / target
        if not target:
            return None
    if not (own / "HEAD").is_file():
        return None
    common = _read(own / "commondir").strip()
    found = GitFolder(own, own / common if common else own)
    if has_special(found.own) or has_special(found.common):
        logger.warning("%s: a FIFO or device lies among git's files; it is not read as a checkout", folder)
        return None
    return found


def _read(path: Path) -> str:
    try:
        return read_regular(path, limit_bytes=_LIMIT_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""
