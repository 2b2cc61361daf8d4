"""Where a bucket's objects lie, and as whom they are asked for."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pydantic import SecretStr

from comfyfarm.cache.places.objects import open_place
from comfyfarm.cache.places.place import S3Access
from comfyfarm.cache.places.signing import Bucket, Signer
from comfyfarm.clock import SystemClock
from comfyfarm.errors import StoreError
from infra.s3_server import S3Server


@pytest.fixture(autouse=True)
def _bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))


@pytest.mark.parametrize(
    ("bucket", "url"),
    [
        (Bucket("b", None, "eu-west-1"), "https://b.s3.eu-west-1.amazonaws.com/a%20b/c"),
        (Bucket("b.c", None, "us-east-1"), "https://s3.us-east-1.amazonaws.com/b.c/a%20b/c"),
        (Bucket("b", None, "cn-north-1"), "https://b.s3.cn-north-1.amazonaws.com.cn/a%20b/c"),
        (Bucket("b", "http://host:1/", "x"), "http://host:1/b/a%20b/c"),
        (Bucket("b", "https://host/s3/", "x"), "https://host/s3/b/a%20b/c"),
    ],
)
def test_an_object_lies_where_the_store_has_it(bucket: Bucket, url: str) -> None:
    assert bucket.origin + bucket.target("a b/c") == url


def test_the_fields_of_a_query_are_sorted_and_quoted() -> None:
    assert Bucket("b", "http://h", "x").target("", {"uploads": "", "prefix": "ü/ +"}) == (
        "/b/?prefix=%C3%BC%2F%20%2B&uploads="
    )


async def test_a_profile_of_the_machine_signs(
    s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3.endpoint)
    monkeypatch.setenv("AWS_PROFILE", "farm")
    (tmp_path / "credentials").write_text(
        f"[farm]\naws_access_key_id = {s3.access_key}\naws_secret_access_key = {s3.secret_key}\n"
    )
    place = open_place(f"s3://{s3.bucket}/{tmp_path.name}")

    await place.put_bytes("k", b"data")

    assert await place.read_bytes("k") == b"data"


def test_an_address_tells_when_a_roles_credentials_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_PROFILE", "farm")
    ends = datetime.fromtimestamp(SystemClock().now() + 5400, UTC).replace(microsecond=0)
    said = {"Version": 1, "AccessKeyId": "k", "SecretAccessKey": "s", "SessionToken": "t",
            "Expiration": ends.isoformat()}  # fmt: skip
    (tmp_path / "said.json").write_text(json.dumps(said))
    (tmp_path / "config").write_text(f"[profile farm]\ncredential_process = cat {tmp_path}/said.json\n")

    signed = Signer("us-east-1", None).presign("https://b/k", expires_s=3600)

    assert signed.ends_at == ends.timestamp()
    assert "X-Amz-Security-Token=t" in signed.url
    assert "Signature" not in repr(signed)
    access = S3Access(access_key="k", secret=SecretStr("s"))
    assert Signer("us-east-1", access).presign("https://b/k", expires_s=3600).ends_at is None


async def test_nobody_to_sign_as_is_named_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")

    with pytest.raises(StoreError, match="AWS_ACCESS_KEY_ID"):
        await open_place("s3://b").put_bytes("k", b"data")


def test_a_session_token_is_signed_with_the_rest() -> None:
    access = S3Access(access_key="k", secret=SecretStr("s"), session_token=SecretStr("t"))

    signed = Signer("us-east-1", access).sign("GET", "https://b/k", {"Host": "b"}, sha256="0" * 64)

    assert signed["X-Amz-Security-Token"] == "t"
    assert signed["X-Amz-Content-SHA256"] == "0" * 64
    assert "x-amz-security-token" in signed["Authorization"]
