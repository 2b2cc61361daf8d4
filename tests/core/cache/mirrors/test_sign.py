"""Signed addresses of a real S3 server: anybody may read by them, and nothing else."""

import json
from datetime import UTC, datetime
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
from infra.s3_server import S3Server


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


async def test_a_list_ends_no_later_than_the_credentials_that_signed_it(
    s3: S3Server, file: Path, bucket: ObjectPlace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = await add_file(bucket, file)
    ends_at = int(SystemClock().now()) + 3600
    keys = {
        "Version": 1,
        "AccessKeyId": s3.access_key,
        "SecretAccessKey": s3.secret_key,
        "Expiration": datetime.fromtimestamp(ends_at, UTC).isoformat(),
    }
    (tmp_path / "keys.json").write_text(json.dumps(keys))
    (tmp_path / "config").write_text(f"[default]\ncredential_process = cat {tmp_path / 'keys.json'}\n")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "nothing"))
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", s3.endpoint)
    place = open_place(f"s3://{s3.bucket}/{tmp_path.name}")

    long = await sign_files(place, {entry.sha256: entry.size}, expires_s=12 * 3600)
    short = await sign_files(place, {entry.sha256: entry.size}, expires_s=60)

    assert long.file.expires.timestamp() == ends_at
    assert short.file.expires.timestamp() < ends_at - 3000
