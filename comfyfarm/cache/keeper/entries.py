"""The files of a cache as a list, and finding them by the names that people use."""

import string
from collections.abc import Sequence

from pydantic import BaseModel, ConfigDict, NonNegativeInt

from comfyfarm.cache.keeper.admission import CacheState
from comfyfarm.cache.keeper.keeper import Keeper
from comfyfarm.cache.keeper.known import Known
from comfyfarm.errors import UsageError

_LEAST_HEX = 6
_HEX = frozenset(string.hexdigits.lower())


class Entry(BaseModel):
    """One file of a cache, or one that is pinned before it came."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    sha256: str
    names: tuple[str, ...]
    """`folder/path`, of links and pins."""
    size: NonNegativeInt | None
    """In bytes; None while it is not here."""
    last_used: float | None
    """Unix time in seconds."""
    first_seen: float | None
    source: str
    pinned: tuple[str, ...]
    in_use: tuple[str, ...]


def list_entries(keeper: Keeper) -> tuple[Entry, ...]:
    """What is here, the last used first, then what is pinned and not here."""
    state, known = keeper.look()
    here = sorted(state.blobs, key=lambda sha: (-state.blobs[sha].last_used, sha))
    return tuple(_entry(sha, state, known) for sha in (*here, *sorted(set(known.pins) - set(here))))


def find_shas(words: Sequence[str], entries: Sequence[Entry], *, may_come: bool = False) -> tuple[str, ...]:
    """SHA-256 of the files that are meant: by hash or how it begins, `folder/path`, `path` or file name.

    `may_come`: a whole SHA-256 need not be here.

    Raises:
        UsageError: a word that means no file here, or several.
    """
    return tuple(dict.fromkeys(_find(word, entries, may_come=may_come) for word in words))


def _find(word: str, entries: Sequence[Entry], *, may_come: bool) -> str:
    lower = word.lower()
    is_hex = set(lower) <= _HEX
    if is_hex and len(lower) == 64 and (may_come or any(entry.sha256 == lower for entry in entries)):
        return lower
    found = [entry for entry in entries if _is_named(entry, word)]
    if not found and is_hex and len(lower) >= _LEAST_HEX:
        found = [entry for entry in entries if entry.sha256.startswith(lower)]
    if not found:
        raise UsageError(
            f"{word}: no file of this cache has that name or SHA-256; `comfyfarm cache ls` lists them"
        )
    if len(found) > 1:
        raise UsageError(
            f"{word}: means {len(found)} files; write folder/path or the SHA-256 of one: "
            f"{', '.join(entry.sha256[:12] for entry in found)}"
        )
    return found[0].sha256


def _is_named(entry: Entry, word: str) -> bool:
    return any(word in {name, name.partition("/")[2], name.rpartition("/")[2]} for name in entry.names)


def _entry(sha256: str, state: CacheState, known: Known) -> Entry:
    blob = state.blobs.get(sha256)
    use = known.uses.get(sha256)
    return Entry(
        sha256=sha256,
        names=known.names(sha256),
        size=None if blob is None else blob.size,
        last_used=None if blob is None else blob.last_used,
        first_seen=None if use is None or blob is None else use.first_seen,
        source="" if use is None else use.source,
        pinned=state.pins.get(sha256, ()),
        in_use=state.in_use.get(sha256, ()),
    )
