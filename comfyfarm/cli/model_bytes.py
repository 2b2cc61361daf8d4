"""Model files as `lock` looks at them: their first bytes, their sizes, without fetching them."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from comfyfarm.addresses import local_path, mask
from comfyfarm.errors import FarmError, InputError, StoreError, TryLater, UsageError
from comfyfarm.lock.safetensors import ReadAt
from comfyfarm.lock.verify import SizeAt

_AT_ONCE = 16
_DENIED = "access denied"
"""What a place says of a refusal, which the same call does not change."""
_ASK_TIMEOUT_S = 10.0


def source_opener(mirrors: Sequence[str]) -> Callable[[str], ReadAt | None]:
    """Opens files of this machine and of the named mirrors; other addresses are not asked for anything."""

    def open_source(source: str) -> ReadAt | None:
        path = local_path(source)
        if path is not None:
            return _local(path)
        if any(source.startswith(mirror.rstrip("/") + "/") for mirror in mirrors):
            return _remote(source)
        return None

    return open_source


def _local(path: Path) -> ReadAt:
    def read_at(offset: int, length: int) -> bytes:
        with path.open("rb") as file:
            file.seek(offset)
            return file.read(length)

    return read_at


def _remote(source: str) -> ReadAt:
    """Stretches of an object, on the measured road; what does not answer is as good as not there."""
    from comfyfarm.cache.places.objects import open_place
    from comfyfarm.cache.places.remote import RemotePlace

    async def get(offset: int, length: int) -> bytes:
        place = open_place(source)
        if not isinstance(place, RemotePlace):
            raise OSError(f"{mask(source)}: no object store")
        with place.errors(""):
            store, key = place.reader(), place.key("")
            return bytes(await store.get_range_async(key, start=offset, length=length))

    def read_at(offset: int, length: int) -> bytes:
        try:
            return asyncio.run(get(offset, length)) if length else b""
        except StoreError as exc:
            raise OSError(str(exc)) from exc

    return read_at


def sizes_at(addresses: Iterable[str]) -> SizeAt:
    """Sizes of files at these addresses, all asked at once; no answer is raised for the one that it is of."""
    found = asyncio.run(_ask_all(tuple(dict.fromkeys(addresses))))

    def size_at(address: str) -> int | None:
        answer = found[address]
        if isinstance(answer, FarmError):
            raise answer
        return answer

    return size_at


async def _ask_all(addresses: Sequence[str]) -> dict[str, int | FarmError | None]:
    slots = asyncio.Semaphore(_AT_ONCE)

    async def one(address: str) -> int | FarmError | None:
        from comfyfarm.cache.places.objects import open_place

        async with slots:
            try:
                return await open_place(address).size_of("")
            except TryLater as exc:
                return InputError(str(exc)) if _DENIED in str(exc) else exc
            except UsageError as exc:
                return TryLater(str(exc))

    return dict(zip(addresses, await asyncio.gather(*map(one, addresses)), strict=True))


def web_size(address: str) -> int | None:
    """Size of the file at a web address; None when it does not say, or not soon."""
    import httpx

    headers = {"Accept-Encoding": "identity"}
    try:
        answer = httpx.head(address, headers=headers, follow_redirects=True, timeout=_ASK_TIMEOUT_S)
    except (httpx.HTTPError, httpx.InvalidURL, UnicodeError):
        return None
    length = answer.headers.get("Content-Length", "")
    return int(length) if answer.status_code == 200 and length.isdecimal() else None
