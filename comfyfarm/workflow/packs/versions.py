"""What a node's `ver` can be, and which of several is the newest."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from enum import StrEnum

_COMMIT = re.compile(r"[0-9a-f]{40}")
_SHORT = re.compile(r"[0-9a-f]{4,39}")
_RELEASE = re.compile(r"(\d{1,9}(?:\.\d{1,9}){1,3})([-.+_]?[0-9A-Za-z][0-9A-Za-z.+_-]*)?")


class VersionKind(StrEnum):
    """Only a commit says which files were used; a release does so by way of a registry or a checkout."""

    COMMIT = "commit"
    SHORT = "short"
    """The first digits of a commit, which another one may share."""
    RELEASE = "release"
    NIGHTLY = "nightly"
    """Whatever the branch held when it was installed."""
    UNKNOWN = "unknown"


def plain(ver: str) -> str:
    """Without spaces, in lower case, and without the v of `v1.2.3`."""
    text = ver.strip().lower()
    return text[1:] if re.match(r"v\d", text) else text


def classify(ver: str) -> VersionKind:
    """What kind of version this is. Only 40 hex digits are a commit."""
    text = plain(ver)
    if _COMMIT.fullmatch(text):
        return VersionKind.COMMIT
    if _SHORT.fullmatch(text):
        return VersionKind.SHORT
    if _RELEASE.fullmatch(text):
        return VersionKind.RELEASE
    return VersionKind.NIGHTLY if text == "nightly" else VersionKind.UNKNOWN


def newest(vers: Sequence[str], *, history: Sequence[str] = ()) -> str | None:
    """The newest of the versions that the nodes of one pack carry, one for each node; None for none.

    Releases are ordered by number. Commits are ordered by `history` (newest first) as far as it has
    them; else the one that most nodes have is taken, and of equals the last in the file. A release
    goes before a commit, since nothing orders the two; what says nothing comes last.
    """
    texts = [plain(ver) for ver in vers]
    releases = [text for text in texts if classify(text) is VersionKind.RELEASE]
    if releases:
        return max(releases, key=_release_key)
    commits = [text for text in texts if classify(text) in {VersionKind.COMMIT, VersionKind.SHORT}]
    if commits:
        return _newest_commit(commits, history)
    return texts[-1] if texts else None


def by_prefix(short: str, commits: Iterable[str]) -> str | None:
    """The one commit that begins so; None when none or several do."""
    found = {commit for commit in commits if commit.startswith(short)}
    return found.pop() if len(found) == 1 else None


def _newest_commit(commits: Sequence[str], history: Sequence[str]) -> str:
    placed = {commit: place for place, commit in enumerate(history)}
    known = [commit for commit in commits if commit in placed]
    if known:
        return min(known, key=placed.__getitem__)
    counts = Counter(commits)
    most = max(counts.values())
    return next(commit for commit in reversed(commits) if counts[commit] == most)


def _release_key(text: str) -> tuple[tuple[int, ...], bool, tuple[tuple[int, int | str], ...]]:
    """Numbers first; a pre-release goes before its release, and its parts count as numbers where they are."""
    match = _RELEASE.fullmatch(text)
    assert match is not None  # noqa: S101 - the caller has classified it
    numbers = tuple(int(part) for part in match[1].split("."))
    rest = (match[2] or "").partition("+")[0]
    parts = tuple(
        (0, int(part)) if part.isdigit() else (1, part) for part in re.findall(r"\d{1,9}|[a-z]+", rest)
    )
    return (*numbers, *(0,) * (4 - len(numbers))), not rest, parts
