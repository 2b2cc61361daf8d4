"""Places: folders, buckets and web servers, and what their addresses mean."""

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pydantic import SecretStr

from comfyfarm.cache.places.objects import ObjectPlace, S3Access, open_place
from comfyfarm.cache.places.place import PutFile, read_s3_access
from comfyfarm.errors import StoreError, UsageError
from infra.s3_server import S3Server

if TYPE_CHECKING:
    from tests.core.cache.conftest import WebServer


@pytest.fixture(params=["folder", "file-uri", "bucket"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectPlace:
    """A place that takes files, of each kind."""
    if request.param == "folder":
        return open_place(str(tmp_path / "pl ace"))
    if request.param == "file-uri":
        return open_place((tmp_path / "pl ace").as_uri())
    s3: S3Server = request.getfixturevalue("s3")
    access: S3Access = request.getfixturevalue("access")
    return open_place(f"s3://{s3.bucket}/{tmp_path.name}/pl ace", access=access)


@pytest.mark.parametrize("name", ["a.bin", "sub/ü 1#2%3?4+5&6~.png", "日本/絵.png"])
async def test_what_is_put_under_a_name_is_read_under_it(place: ObjectPlace, name: str) -> None:
    await place.put_bytes(name, b"one")
    await place.put_bytes(name, b"two!")

    assert await place.read_bytes(name) == b"two!"
    assert await place.size_of(name) == 4


async def test_what_is_not_there_is_none(place: ObjectPlace) -> None:
    assert await place.size_of("absent") is None
    assert await place.read_bytes("absent") is None


async def test_a_file_is_kept_under_create_and_replaced_under_overwrite(
    place: ObjectPlace, tmp_path: Path
) -> None:
    old, new = _put("k", tmp_path / "old", b"old"), _put("k", tmp_path / "new", b"new")

    assert await place.put_file(old, mode="create")
    assert not await place.put_file(new, mode="create")
    assert await place.read_bytes("k") == b"old"
    assert await place.put_file(new, mode="overwrite")
    assert await place.read_bytes("k") == b"new"


async def test_a_file_of_many_parts_arrives_whole(place: ObjectPlace, content: bytes, tmp_path: Path) -> None:
    assert await place.put_file(_put("large", tmp_path / "large", content), mode="create")

    assert await place.read_bytes("large") == content


async def test_a_vanished_file_is_a_store_error(place: ObjectPlace, tmp_path: Path) -> None:
    with pytest.raises(StoreError):
        await place.put_file(
            PutFile(name="k", file=tmp_path / "gone", sha256="0" * 64, size=3), mode="create"
        )


async def test_a_wrong_secret_is_named_and_not_shown(s3: S3Server) -> None:
    access = S3Access(endpoint=s3.endpoint, access_key=s3.access_key, secret=SecretStr("wr0ng"))
    place = open_place(f"s3://{s3.bucket}/x", access=access)

    with pytest.raises(StoreError, match=f"s3://{s3.bucket}/x/k: access denied") as caught:
        await place.put_bytes("k", b"data")

    assert "wr0ng" not in repr(caught.value) + repr(access)
    assert caught.value.__cause__ is None


async def test_the_environment_says_where_s3_is(
    s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in s3.environment.items():
        monkeypatch.setenv(name, value)
    place = open_place(f"s3://{s3.bucket}/{tmp_path.name}")

    await place.put_bytes("k", b"data")

    assert await place.read_bytes("k") == b"data"


async def test_given_credentials_are_not_mixed_with_a_token_of_the_environment(
    access: S3Access, s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SESSION_TOKEN", "of somebody else")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")

    await open_place(f"s3://{s3.bucket}/{tmp_path.name}", access=access).put_bytes("k", b"data")


def test_half_of_the_credentials_are_none() -> None:
    assert read_s3_access({"AWS_ACCESS_KEY_ID": "key"}) is None


def test_the_endpoint_of_s3_alone_goes_first() -> None:
    env = {"AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "s", "AWS_ENDPOINT_URL": "http://all"}

    assert read_s3_access(env) == S3Access(endpoint="http://all", access_key="k", secret=SecretStr("s"))
    specific = read_s3_access(env | {"AWS_ENDPOINT_URL_S3": "http://s3", "AWS_REGION": "auto"})
    assert specific is not None
    assert (specific.endpoint, specific.region) == ("http://s3", "auto")


async def test_a_web_server_is_read_and_not_written(web: "WebServer") -> None:
    web.files["/dir/x%20y"] = b"data"
    place = open_place(web.url("/dir"))

    assert await place.read_bytes("x y") == b"data"
    assert await place.size_of("x y") == 4
    assert await place.size_of("absent") is None
    with pytest.raises(StoreError, match="only read"):
        await place.put_bytes("k", b"data")


async def test_an_unreachable_server_is_named_without_its_secrets() -> None:
    place = open_place("http://me:5ecret@127.0.0.1:9/dir?token=5ecret")

    with pytest.raises(StoreError, match="cannot be reached") as caught:
        await place.size_of("k")

    assert "5ecret" not in str(caught.value)


@pytest.mark.parametrize("address", ["ftp://host/x", "hf://repo/x", "s3://"])
def test_an_address_of_an_unknown_kind_is_wrong_usage(address: str) -> None:
    with pytest.raises(UsageError, match=address.rstrip("/")):
        open_place(address)


async def test_a_folder_in_the_way_is_a_store_error(tmp_path: Path) -> None:
    (tmp_path / "k").mkdir()

    with pytest.raises(StoreError, match=r"k: Is a directory"):
        await open_place(str(tmp_path)).put_bytes("k", b"data")


def _put(name: str, file: Path, data: bytes) -> PutFile:
    file.write_bytes(data)
    return PutFile(name=name, file=file, sha256=hashlib.sha256(data).hexdigest(), size=len(data))
