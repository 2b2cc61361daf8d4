"""All that a mirror holds, by one listing of its files and one of its entries."""

import asyncio
import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from comfyfarm.cache.mirrors.entry import BLOBS, META, MirrorEntry, mirror_key, read_entry
from comfyfarm.cache.places.place import Listed, ObjectPlace

_ASKED_AT_ONCE = 16
_NAME = re.compile(r"(?:meta/|sha256/[0-9a-f]{2}/)([0-9a-f]{64})(?:\.json)?")


class Inventory(NamedTuple):
    """What lies in a mirror, by SHA-256."""

    blobs: Mapping[str, Listed]
    metas: Mapping[str, Listed]
    foreign: tuple[str, ...]
    """Names that no mirror has; nobody touches them."""


async def take_inventory(place: ObjectPlace) -> Inventory:
    """List a mirror.

    Raises:
        StoreError: it did not answer.
    """
    blobs: dict[str, Listed] = {}
    metas: dict[str, Listed] = {}
    foreign: list[str] = []
    for prefix, found in ((BLOBS, blobs), (META, metas)):
        async for listed in place.list(prefix):
            hit = _NAME.fullmatch(listed.name)
            if hit and listed.name == (mirror_key(hit[1]) if prefix == BLOBS else f"{META}{hit[1]}.json"):
                found[hit[1]] = listed
            else:
                foreign.append(listed.name)
    return Inventory(blobs, metas, tuple(sorted(foreign)))


async def read_entries(place: ObjectPlace, shas: Iterable[str]) -> Mapping[str, MirrorEntry | None]:
    """What is known of these files, many asked for at once.

    Raises:
        StoreError: the mirror did not answer.
    """
    slots = asyncio.Semaphore(_ASKED_AT_ONCE)

    async def one(sha256: str) -> tuple[str, MirrorEntry | None]:
        async with slots:
            return sha256, await read_entry(place, sha256)

    return dict(await asyncio.gather(*map(one, shas)))
