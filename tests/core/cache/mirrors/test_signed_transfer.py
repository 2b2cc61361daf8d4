"""A transfer by signed addresses of a real S3 server that end while it goes on."""

import hashlib
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import pytest

from comfyfarm.cache.mirrors.add import add_file
from comfyfarm.cache.mirrors.sign import sign_files
from comfyfarm.cache.mirrors.signed import SignedList
from comfyfarm.cache.places.place import ObjectPlace
from comfyfarm.cache.transfer.landing import open_landing
from comfyfarm.cache.transfer.pull import pull
from comfyfarm.cache.transfer.source import Flow, SourceFailed
from comfyfarm.clock import SystemClock

if TYPE_CHECKING:
    from tests.core.cache.conftest import WebServer

_REFUSED_WITHIN_S = 20.0


async def _expired(url: str) -> bool:
    """Wait until the server refuses the address."""
    clock = SystemClock()
    until = clock.monotonic() + _REFUSED_WITHIN_S
    async with httpx.AsyncClient() as client:
        while clock.monotonic() < until:
            if (await client.get(url, headers={"Range": "bytes=0-0"})).status_code == 403:
                return True
            await clock.sleep(0.1)
    return False


def _pulled(signed: SignedList, sha256: str, size: int, folder: Path) -> str:
    """Fetch by the list; SHA-256 of what came."""
    source = signed.addressed(sha256)
    assert source is not None
    flow = Flow(lambda _count: None)
    landing = open_landing(folder, size, stop=flow.check)
    try:
        pull(source, size, landing, flow=flow)
        return landing.digest(flow.check)
    finally:
        landing.close(keep=False)


async def test_a_list_that_somebody_renews_keeps_a_transfer_going(
    bucket: ObjectPlace, file: Path, web: "WebServer", tmp_path: Path
) -> None:
    entry = await add_file(bucket, file)
    sizes = {entry.sha256: entry.size}
    short = (await sign_files(bucket, sizes, expires_s=1)).file
    # The list claims more than the store keeps, as with a role whose credentials end early.
    claims = short.model_copy(
        update={"expires": (await sign_files(bucket, sizes, expires_s=3600)).file.expires}
    )
    web.files["/signed.json"] = claims.text().encode()
    signed = SignedList(web.url("/signed.json"))
    assert signed.addressed(entry.sha256) is not None
    assert await _expired(short.files[entry.sha256])
    web.files["/signed.json"] = (await sign_files(bucket, sizes, expires_s=3600)).file.text().encode()

    found: list[str] = []
    # A thread, as in the cache: the engine blocks.
    work = threading.Thread(
        target=lambda: found.append(_pulled(signed, entry.sha256, entry.size, tmp_path / "landing"))
    )
    work.start()
    work.join()

    assert found == [hashlib.sha256(file.read_bytes()).hexdigest()]


async def test_a_list_that_nobody_renews_fails_by_its_name(bucket: ObjectPlace, tmp_path: Path) -> None:
    (tmp_path / "m.pt").write_bytes(b"weights")
    entry = await add_file(bucket, tmp_path / "m.pt")
    short = (await sign_files(bucket, {entry.sha256: entry.size}, expires_s=1)).file
    (tmp_path / "signed.json").write_text(short.text())
    signed = SignedList(str(tmp_path / "signed.json"))
    assert signed.addressed(entry.sha256) is not None
    assert await _expired(short.files[entry.sha256])

    with pytest.raises(SourceFailed) as caught:
        _pulled(signed, entry.sha256, entry.size, tmp_path / "landing")

    assert "expired" in caught.value.reason
    assert str(tmp_path / "signed.json") in caught.value.address
    assert "Signature" not in str(caught.value)
