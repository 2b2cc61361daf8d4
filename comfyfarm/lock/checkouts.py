"""Node packs that lie in a folder: where each was cloned from, at which commit, and what it calls itself.

The address and HEAD are read from git's files; releases and history are asked of `git`, where it is
installed. Nothing of a pack is run.
"""

import logging
import os
import re
import shutil
import subprocess
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from comfyfarm.errors import UsageError
from comfyfarm.lock.git_files import GitFolder, find_git
from comfyfarm.lock.regular_file import read_regular
from comfyfarm.workflow.packs.index import InstalledPack, PackIndex, unique_repos
from comfyfarm.workflow.packs.urls import repo_url
from comfyfarm.workflow.packs.versions import VersionKind, classify, plain

logger = logging.getLogger(__name__)

_LIMIT_BYTES: Final = 1024 * 1024
_GIT_TIMEOUT_S = 30
_MOST_COMMITS = 20_000
_SKIPPED = {"__pycache__", "node_modules"}
_VERSION_LINE = re.compile(r"""\+\s*version\s*=\s*["']([^"']{1,60})["']""")
_INERT = {
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_OPTIONAL_LOCKS": "0",
    # A partial clone would fetch what it lacks, by whatever program it configures.
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_ALLOW_PROTOCOL": "none",
    "LC_ALL": "C",
}


def read_checkouts(custom_nodes: Path) -> PackIndex:
    """All packs below a `custom_nodes` folder.

    Raises:
        UsageError: there is no such folder.
    """
    try:
        folders = sorted(path for path in custom_nodes.iterdir() if path.is_dir())
    except OSError as exc:
        raise UsageError(
            f"{custom_nodes}: cannot be read ({exc.strerror}); name a custom_nodes folder"
        ) from exc
    kept = (path for path in folders if path.name not in _SKIPPED and not path.name.startswith("."))
    packs = tuple(read_pack(path) for path in kept)
    return PackIndex(installed=packs, repos=unique_repos(pack.url for pack in packs if pack.url is not None))


def read_pack(folder: Path) -> InstalledPack:
    """One pack; what its folder does not tell stays None."""
    project = read_pyproject(folder)
    git = find_git(folder)
    url = git.remote_url() if git is not None else None
    return InstalledPack(
        folder=folder.name.removesuffix(".disabled"),
        url=(repo_url(url) if url is not None else None) or _project_url(project),
        commit=_head(git, folder) if git is not None else None,
        id=_text(project.get("name")),
        version=_text(project.get("version")),
        releases=MappingProxyType(_releases(folder) if git is not None else {}),
        history=_history(folder) if git is not None else (),
    )


def read_pyproject(folder: Path) -> Mapping[str, Any]:
    """The `[project]` table of a pack; empty when there is none that can be read."""
    try:
        data = read_regular(folder / "pyproject.toml", limit_bytes=_LIMIT_BYTES)
        raw = tomllib.loads(data.decode("utf-8-sig"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as exc:
        logger.warning("%s: pyproject.toml cannot be read (%s)", folder, type(exc).__name__)
        return {}
    project = raw.get("project")
    return project if isinstance(project, dict) else {}


def _head(git: GitFolder, folder: Path) -> str | None:
    """HEAD, from git's files; a store of refs that is not made of files is asked of git."""
    return git.head() or next(_git(folder, "rev-parse", "--verify", "--quiet", "HEAD^{commit}"), None)


def _history(folder: Path) -> tuple[str, ...]:
    return tuple(_git(folder, "rev-list", f"--max-count={_MOST_COMMITS}", "--all", "HEAD"))


def _releases(folder: Path) -> dict[str, str]:
    """Commit by release: of its tag, else the one that set the version in pyproject.toml.

    The registry takes a release when a push changes that line, and most packs set no tags.
    """
    return {**dict(_set_versions(folder)), **dict(_tags(folder))}


def _tags(folder: Path) -> Iterator[tuple[str, str]]:
    form = "--format=%(refname:strip=2) %(objecttype) %(objectname) %(*objectname)"
    for line in _git(folder, "for-each-ref", form, "refs/tags"):
        name, kind, commit, *peeled = line.split(" ")
        commit = peeled[0] if kind == "tag" and peeled and peeled[0] else commit
        if classify(name) is VersionKind.RELEASE and kind in {"tag", "commit"}:
            yield plain(name), commit


def _set_versions(folder: Path) -> Iterator[tuple[str, str]]:
    """Newest first, so that of several commits the one that brought the version in counts."""
    options = (
        "--no-color",
        "--no-ext-diff",
        "--no-textconv",
        "--unified=0",
        "--no-renames",
        "--no-show-signature",
    )
    commit = ""
    for line in _git(folder, "log", "--format=commit %H", "-p", *options, "HEAD", "--", "pyproject.toml"):
        if line.startswith("commit "):
            commit = line.removeprefix("commit ")
        elif (found := _VERSION_LINE.match(line)) is not None:
            yield plain(found[1]), commit


def show(folder: Path, commit: str, path: str) -> bytes | None:
    """A file of a checkout as it is at a commit; None when there is none, or no git to ask."""
    return _answer(folder, "cat-file", "blob", f"{commit}:{path}")


def _git(folder: Path, *arguments: str) -> Iterator[str]:
    """The lines that git answers; none when it is not installed, fails, or is too slow."""
    yield from (_answer(folder, *arguments) or b"").decode("utf-8", "replace").splitlines()


def _answer(folder: Path, *arguments: str) -> bytes | None:
    program = shutil.which("git")
    if program is None:
        return None
    # A pack may belong to another user: nothing of it is run, so git may look into it.
    settings = ("safe.directory=*", "core.fsmonitor=false", f"core.hooksPath={os.devnull}")
    options = [word for setting in settings for word in ("-c", setting)]
    command = [program, *options, "-C", str(folder), *arguments]
    try:
        done = subprocess.run(
            command, capture_output=True, timeout=_GIT_TIMEOUT_S, check=True, env=_environment()
        )
    except (OSError, subprocess.SubprocessError) as exc:
        logger.debug("git %s in %s: %s", arguments[0], folder, type(exc).__name__)
        return None
    return done.stdout


def _environment() -> dict[str, str]:
    """Ours without what would point git at another repository, as inside a hook."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    return {**kept, **_INERT}


def _project_url(project: Mapping[str, Any]) -> str | None:
    urls = project.get("urls")
    texts = {str(key).lower(): value for key, value in urls.items()} if isinstance(urls, dict) else {}
    text = texts.get("repository") or texts.get("source") or texts.get("homepage")
    return repo_url(text) if isinstance(text, str) else None


def _text(value: Any) -> str | None:
    return value.strip() or None if isinstance(value, str) else None
