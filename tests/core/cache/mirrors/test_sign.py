"""Signed addresses of a real S3 server: anybody may read by them, and nothing else."""

from pathlib import Path

import httpx
import pytest

from comfyfarm.cache.mirrors.add import add_file
from comfyfarm.cache.mirrors.sign import sign_files
from comfyfarm.cache.mirrors.signed import SignedList
from comfyfarm.cache.places.objects import open_place
from comfyfarm.cache.places.place import ObjectPlace
from comfyfarm.clock import SystemClock
from comfyfarm.errors import UsageError


async def test_whoever_has_the_list_reads_without_credentials(
    bucket: ObjectPlace, file: Path, content: bytes, tmp_path: Path
) -> None:
    entry = await add_file(bucket, file)
    absent = "ab" * 32
    began = SystemClock().now()

    signed = await sign_files(bucket, {entry.sha256: entry.size, absent: 5}, expires_s=600)

    assert signed.absent == (absent,)
    assert began + 599 <= signed.file.expires.timestamp() <= SystemClock().now() + 600
    (tmp_path / "signed.json").write_text(signed.file.text())
    source = SignedList(str(tmp_path / "signed.json")).addressed(entry.sha256)
    assert source is not None
    url = source.request().url
    async with httpx.AsyncClient() as client:
        answer = await client.get(url, headers={"Range": "bytes=5-8"})
        assert (answer.status_code, answer.content) == (206, content[5:9])
        assert (await client.get(url.partition("?")[0])).status_code == 403
        assert (await client.put(url, content=b"mine")).status_code == 403


async def test_a_file_of_another_size_is_not_signed(bucket: ObjectPlace, file: Path) -> None:
    entry = await add_file(bucket, file)
    signed = await sign_files(bucket, {entry.sha256: entry.size + 1}, expires_s=60)
    assert (signed.absent, dict(signed.file.files)) == ((entry.sha256,), {})


@pytest.mark.parametrize("address", ["{tmp}", "http://127.0.0.1:9/mirror"])
async def test_only_a_bucket_signs(address: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="only a bucket"):
        await sign_files(open_place(address.format(tmp=tmp_path)), {"ab" * 32: 1}, expires_s=60)
