"""The mirror's own copy of a file, read whole: what its bytes are now."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable

from comfyfarm.cache.mirrors.hashes import Hashes, Hashing, hashes_of
from comfyfarm.cache.pinned import PART_BYTES
from comfyfarm.cache.places.folder import FolderPlace
from comfyfarm.cache.places.place import ObjectPlace
from comfyfarm.cache.places.remote import RemotePlace
from comfyfarm.errors import InputError, StoreError

_PARTS_AHEAD = 2
"""Asked for while one is hashed: 64 MiB of memory for a file at most, the one that is next among them."""


async def read_back(place: ObjectPlace, name: str, size: int, *, on_bytes: Callable[[int], None]) -> Hashes:
    """Hash a file of the place that is `size` bytes long; `on_bytes` is told of them, from any thread.

    Raises:
        StoreError: it could not be read.
    """
    if isinstance(place, FolderPlace):
        try:
            return await asyncio.to_thread(hashes_of, place.path(name), on_bytes)
        except InputError as exc:
            raise StoreError(str(exc)) from exc
    if not isinstance(place, RemotePlace):
        raise StoreError(f"{place.address}: a place of a kind that cannot be read back")
    hashing = Hashing()
    with place.errors(name):
        async for part in _parts(place, name, size):
            await asyncio.to_thread(hashing.take, part)
            on_bytes(len(part))
    return hashing.done()


async def _parts(place: RemotePlace, name: str, size: int) -> AsyncIterator[memoryview]:
    store, key = place.reader(), place.key(name)

    async def get(start: int) -> memoryview:
        return memoryview(await store.get_range_async(key, start=start, end=min(start + PART_BYTES, size)))

    starts = iter(range(0, size, PART_BYTES))
    waiting: deque[asyncio.Task[memoryview]] = deque()
    try:
        for start in starts:
            waiting.append(asyncio.create_task(get(start)))
            if len(waiting) > _PARTS_AHEAD:
                yield await waiting.popleft()
        while waiting:
            yield await waiting.popleft()
    finally:
        for task in waiting:
            task.cancel()
