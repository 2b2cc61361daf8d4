"""Files of every remote place as addresses that any HTTP engine can ask for."""

import base64
import dataclasses
import urllib.error
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from comfyfarm.cache.places.addressed import PRESIGNED_FOR_S, PRESIGNED_SPARE_S, PresignedObject
from comfyfarm.cache.places.objects import S3Access, open_place
from comfyfarm.cache.places.remote import RemotePlace
from comfyfarm.cache.places.request import Addressed
from comfyfarm.cache.places.signing import Presigned
from infra.s3_server import S3Server

if TYPE_CHECKING:
    from tests.core.cache.conftest import WebServer


class _Clock:
    def __init__(self) -> None:
        self.at = 1000.0

    def now(self) -> float:
        return self.at

    def monotonic(self) -> float:
        return self.at

    async def sleep(self, seconds: float) -> None:
        self.at += seconds


def _remote(address: str, access: S3Access | None = None) -> RemotePlace:
    place = open_place(address, access=access)
    assert isinstance(place, RemotePlace)
    return place


def _get(source: Addressed) -> bytes:
    request = source.request()
    with urllib.request.urlopen(  # noqa: S310 - our own server
        urllib.request.Request(request.url, headers=dict(request.headers))  # noqa: S310
    ) as answer:
        data: bytes = answer.read()
        return data


@pytest.mark.parametrize("name", ["a.bin", "sub/ü 1#2%3?4+5&6~.png"])
async def test_an_object_is_read_by_its_signed_address(
    s3: S3Server, access: S3Access, tmp_path: Path, name: str
) -> None:
    place = _remote(f"s3://{s3.bucket}/{tmp_path.name}", access)
    await place.put_bytes(name, b"data")
    source = place.addressed(name)

    assert _get(source) == b"data"
    assert source.address == f"s3://{s3.bucket}/{tmp_path.name}/{name}"
    assert "Signature" not in repr(source.request()) + repr(source)


async def test_a_wrong_secret_signs_what_is_refused(s3: S3Server, access: S3Access) -> None:
    from pydantic import SecretStr

    wrong = dataclasses.replace(access, secret=SecretStr("wr0ng"))

    with pytest.raises(urllib.error.HTTPError, match="403") as caught:
        _get(_remote(f"s3://{s3.bucket}", wrong).addressed("k"))
    caught.value.close()


def test_a_signed_address_is_kept_until_shortly_before_its_end() -> None:
    clock, signed = _Clock(), list[int]()

    def sign(expires_s: int) -> Presigned:
        signed.append(expires_s)
        return Presigned(f"https://host/k?n={len(signed)}", None)

    source = PresignedObject("s3://b/k", sign, clock=clock)
    first = source.request()
    clock.at += PRESIGNED_FOR_S / 2

    assert source.request() == first
    clock.at += PRESIGNED_FOR_S / 2 - 1
    assert source.request() != first
    assert source.renew()
    assert source.request().url.endswith("n=3")
    assert signed == [PRESIGNED_FOR_S] * 3


def test_a_signed_address_ends_with_the_credentials() -> None:
    clock, signed = _Clock(), list[float]()

    def sign(_expires_s: int) -> Presigned:
        signed.append(clock.at + 1200)
        return Presigned(f"https://host/k?n={len(signed)}", signed[-1])

    source = PresignedObject("s3://b/k", sign, clock=clock)
    first = source.request()
    clock.at += 1200 - PRESIGNED_SPARE_S - 1

    assert source.request() == first
    clock.at += 2
    assert source.request().url.endswith("n=2")


def test_a_web_file_keeps_its_query_and_not_its_password(web: "WebServer") -> None:
    web.files["/dir/x%20y"] = b"data"
    address = web.url("/dir?token=5ecret#part").replace("http://", "http://me:p%40ss@")
    source = _remote(address).addressed("x y")

    assert _get(source) == b"data"
    assert web.authorization == "Basic " + base64.b64encode(b"me:p@ss").decode()
    assert source.request().url == web.url("/dir/x%20y?token=5ecret")
    assert "5ecret" not in source.address
    assert "p%40ss" not in source.address
    assert not source.renew()
