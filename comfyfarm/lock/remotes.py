"""The releases of a repository, asked of its git server: tags, without any checkout."""

import logging
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from types import MappingProxyType
from typing import Final

from comfyfarm.errors import UsageError
from comfyfarm.workflow.packs.index import InstalledPack, PackIndex, unique_repos
from comfyfarm.workflow.packs.urls import repo_name
from comfyfarm.workflow.packs.versions import VersionKind, classify, plain

logger = logging.getLogger(__name__)

_TIMEOUT_S: Final = 60
_AT_ONCE = 8
_TAGS = "refs/tags/"
_PEELED = "^{}"


def remote_releases(urls: Iterable[str]) -> PackIndex:
    """The commit of each release that a tag names, of each repository; one that does not answer has none.

    Raises:
        UsageError: git is not installed.
    """
    if shutil.which("git") is None:
        raise UsageError("git is not installed, which asks repositories for their releases; install it")
    several = unique_repos(urls)
    with ThreadPoolExecutor(_AT_ONCE) as threads:
        return PackIndex(installed=tuple(threads.map(_releases, several)))


def _releases(url: str) -> InstalledPack:
    tags = dict(_tags(url))
    # A tag with a message is an object of its own; what it points at is listed behind it.
    peeled = {name.removesuffix(_PEELED): commit for name, commit in tags.items() if name.endswith(_PEELED)}
    named = {name: commit for name, commit in tags.items() if not name.endswith(_PEELED)}
    found = {**named, **peeled}.items()
    releases = {plain(name): commit for name, commit in found if classify(name) is VersionKind.RELEASE}
    return InstalledPack(repo_name(url), url, releases=MappingProxyType(releases))


def _tags(url: str) -> Iterator[tuple[str, str]]:
    for line in _ask(url).splitlines():
        commit, _, ref = line.partition("\t")
        if ref.startswith(_TAGS):
            yield ref.removeprefix(_TAGS), commit


def _ask(url: str) -> str:
    command = ["git", "ls-remote", "--quiet", "--", url, f"{_TAGS}*"]
    kept = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    env = {**kept, "GIT_TERMINAL_PROMPT": "0", "GIT_ALLOW_PROTOCOL": "https:http", "LC_ALL": "C"}
    try:
        done = subprocess.run(
            command, cwd=tempfile.gettempdir(), env=env, capture_output=True, timeout=_TIMEOUT_S, check=True
        )
    except (OSError, subprocess.SubprocessError) as exc:
        logger.warning("%s does not say its releases (%s)", url, type(exc).__name__)
        return ""
    return done.stdout.decode("utf-8", "replace")
