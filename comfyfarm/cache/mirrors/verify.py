"""Whether a mirror's files are what their names say, by the server's word or by reading them."""

import asyncio
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict

from comfyfarm.cache.mirrors.entry import MirrorEntry, mirror_key, read_entry
from comfyfarm.cache.mirrors.hashes import bad_parts
from comfyfarm.cache.mirrors.inventory import Inventory
from comfyfarm.cache.mirrors.read_back import read_back
from comfyfarm.cache.pinned import PART_BYTES
from comfyfarm.cache.places.place import ObjectPlace, OnBytes, untold

FILES_AT_ONCE = 16
READ_AT_ONCE = 2
"""As each reads ahead, and hashing takes a core."""


class Problem(BaseModel):
    """What is wrong with one file of a mirror."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    sha256: str
    code: str
    """`no_file`, `no_entry`, `wrong_size`, `wrong_bytes` or `wrong_parts`."""
    detail: str
    """For people."""
    names: tuple[str, ...] = ()
    bad_parts: tuple[int, ...] = ()
    """Numbers of the 16 MiB parts that are wrong, from 0, where the entry has their hashes."""


class Verified(NamedTuple):
    """What verifying found."""

    checked: int
    """Files looked at."""
    problems: tuple[Problem, ...]
    by_size_only: tuple[str, ...]
    """Files of the right size whose bytes the server says nothing of."""


class _Found(NamedTuple):
    problem: Problem | None
    by_size_only: bool = False


async def verify(
    place: ObjectPlace, shas: Sequence[str], *, deep: bool = False, on_bytes: OnBytes | None = None
) -> Verified:
    """Check these files; with `deep` each byte of them is read, of which `on_bytes` is told.

    Raises:
        StoreError: the mirror did not answer.
    """
    slots = asyncio.Semaphore(READ_AT_ONCE if deep else FILES_AT_ONCE)

    async def one(sha256: str) -> _Found:
        async with slots:
            return await _verify_one(place, sha256, deep=deep, on_bytes=on_bytes or untold)

    wanted = tuple(dict.fromkeys(shas))
    found = await asyncio.gather(*map(one, wanted))
    return Verified(
        len(wanted),
        tuple(one.problem for one in found if one.problem),
        tuple(sha for sha, one in zip(wanted, found, strict=True) if one.by_size_only),
    )


def everything(inventory: Inventory) -> tuple[str, ...]:
    """All that has a file, an entry, or both."""
    return tuple(sorted({*inventory.blobs, *inventory.metas}))


async def _verify_one(place: ObjectPlace, sha256: str, *, deep: bool, on_bytes: OnBytes) -> _Found:
    entry = await read_entry(place, sha256)
    size = await place.size_of(mirror_key(sha256))
    names = entry.names if entry else ()

    def wrong(code: str, detail: str, bad: Iterable[int] = ()) -> _Found:
        problem = Problem(sha256=sha256, code=code, detail=detail, names=names, bad_parts=tuple(bad))
        return _Found(problem)

    if size is None:
        return wrong("no_file", "the file is not there" + (", only what is known of it" if entry else ""))
    if entry is not None and size != entry.size:
        return wrong("wrong_size", f"{size} bytes instead of {entry.size}")
    is_right = None if deep else await _by_the_server(place, sha256, size, entry)
    # What the server denies is read before it is called wrong: sent in other parts it has another checksum.
    if deep or is_right is False:
        found = await read_back(place, mirror_key(sha256), size, on_bytes=on_bytes if deep else untold)
        if found.sha256 != sha256:
            bad = bad_parts(entry.parts if entry else (), found.parts)
            return wrong("wrong_bytes", f"its bytes are those of {found.sha256}{_said(bad)}", bad)
        if entry is not None and entry.parts != found.parts:
            return wrong("wrong_parts", "the file is right, and the hashes of its parts are not")
        is_right = True
    if entry is None:
        return wrong("no_entry", "nothing that can be read is known of it")
    return _Found(None, by_size_only=is_right is None)


async def _by_the_server(
    place: ObjectPlace, sha256: str, size: int, entry: MirrorEntry | None
) -> bool | None:
    parts = entry.parts if entry else ()
    return await place.holds(mirror_key(sha256), sha256=sha256, size=size, part_sha256=parts)


def _said(bad: Sequence[int]) -> str:
    if not bad:
        return ""
    mib = PART_BYTES >> 20
    at = ", ".join(f"{number * mib}-{(number + 1) * mib}" for number in bad[:8])
    return f"; wrong at MiB {at}{', …' if len(bad) > 8 else ''}"
