"""Makes a signed list where the credentials are: an address of each file that needs none, for some hours."""

import asyncio
import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from comfyfarm.cache.mirrors.entry import mirror_key
from comfyfarm.cache.mirrors.signed import SignedFile, signed_file
from comfyfarm.cache.places.bucket import BucketPlace
from comfyfarm.cache.places.place import ObjectPlace
from comfyfarm.cache.places.signing import Presigned
from comfyfarm.clock import Clock, SystemClock
from comfyfarm.errors import UsageError

LONGEST_S = 7 * 86400
"""AWS signature version 4 allows no more."""
_ASKED_AT_ONCE = 16


class Signed(NamedTuple):
    """A list, and what is not in it because the mirror does not have it."""

    file: SignedFile
    absent: tuple[str, ...]


async def sign_files(
    place: ObjectPlace, sizes: Mapping[str, int], *, expires_s: int, clock: Clock | None = None
) -> Signed:
    """Sign the address of each of these files that the mirror has.

    Args:
        place: the mirror; only a bucket can sign.
        sizes: bytes of each file, by SHA-256. One of another size is as good as absent.
        expires_s: so many seconds the addresses are good, `LONGEST_S` at most; fewer where the credentials
            end before.
        clock: tells until when.

    Raises:
        UsageError: the mirror is no bucket.
        StoreError: it did not answer, or there are no credentials.
    """
    if not isinstance(place, BucketPlace):
        raise UsageError(f"{place.address}: only a bucket (s3://…) signs; hosts read a folder as it is")
    # Before the signing, in whole seconds as signatures are dated: never later than they end.
    expires_at = math.floor((clock or SystemClock()).now()) + expires_s
    there = await _present(place, sizes)
    made = await asyncio.to_thread(_presigned, place, there, expires_s)
    ends = [one.ends_at for one in made.values() if one.ends_at is not None]
    absent = tuple(sha256 for sha256 in sizes if sha256 not in made)
    urls = {sha256: one.url for sha256, one in made.items()}
    return Signed(signed_file(urls, expires_at=min([expires_at, *ends])), absent)


def _presigned(place: BucketPlace, shas: Sequence[str], expires_s: int) -> dict[str, Presigned]:
    return {sha256: place.presign(mirror_key(sha256), expires_s=expires_s) for sha256 in shas}


async def _present(place: ObjectPlace, sizes: Mapping[str, int]) -> Sequence[str]:
    slots = asyncio.Semaphore(_ASKED_AT_ONCE)

    async def one(sha256: str) -> bool:
        async with slots:
            return await place.size_of(mirror_key(sha256)) == sizes[sha256]

    found = await asyncio.gather(*map(one, sizes))
    return [sha256 for sha256, is_there in zip(sizes, found, strict=True) if is_there]
