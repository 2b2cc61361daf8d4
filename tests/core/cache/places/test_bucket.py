"""Uploads to a bucket: right bytes in the end, and few requests, whatever dialect the store speaks."""

import asyncio
import dataclasses
import hashlib
import logging
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from comfyfarm.cache.pinned import PART_BYTES
from comfyfarm.cache.places.objects import ObjectPlace, S3Access, open_place
from comfyfarm.cache.places.place import PutFile
from comfyfarm.clock import SystemClock
from comfyfarm.errors import SpoiledFile, StaleClaim, StoreError
from infra.s3_server import S3Server

if TYPE_CHECKING:
    from tests.core.cache.places.conftest import OddStore


def _open(odd: "OddStore") -> ObjectPlace:
    return open_place("s3://b/x", access=odd.access)


def _put(tmp_path: Path, data: bytes, name: str = "k") -> PutFile:
    file = tmp_path / f"file-{len(data)}-{name.replace('/', '-')}"
    file.write_bytes(data)
    return PutFile(name=name, file=file, sha256=hashlib.sha256(data).hexdigest(), size=len(data))


def _parts(data: bytes) -> tuple[str, ...]:
    return tuple(
        hashlib.sha256(data[at : at + PART_BYTES]).hexdigest() for at in range(0, len(data), PART_BYTES)
    )


def _nothing() -> None:
    """Nobody else has it."""


async def test_a_small_file_costs_one_look_and_one_put(odd: "OddStore", tmp_path: Path) -> None:
    put = _put(tmp_path, b"small")

    assert await _open(odd).put_file(put, mode="create")

    assert odd.requests == [("HEAD", "x/k", ""), ("PUT", "x/k", "")]
    assert odd.objects == {"x/k": b"small"}


async def test_files_put_again_are_only_looked_at(odd: "OddStore", tmp_path: Path) -> None:
    puts = [_put(tmp_path, f"{n}".encode() * 9, f"job/{n}.png") for n in range(8)]
    last = ("job/p.json", b"{}")
    place = _open(odd)
    await place.put_all(puts, last, guard=_nothing)
    first = len(odd.requests)

    await place.put_all(puts, last, guard=_nothing)

    assert odd.count("PUT") == 9
    assert first == 1 + 9
    assert [one[0] for one in odd.requests[first:]].count("HEAD") == 9
    assert len(odd.requests) == first + 1 + 9


@pytest.mark.parametrize("checksums", ["say", "ignore", "refuse", "refuse with 400"])
@pytest.mark.parametrize("conditions", ["honour", "ignore", "refuse"])
async def test_every_dialect_of_s3_gets_the_right_bytes(
    odd: "OddStore", tmp_path: Path, content: bytes, checksums: str, conditions: str
) -> None:
    odd.checksums, odd.conditions = checksums, conditions
    place = _open(odd)

    for data, name in ((content, "large"), (b"small", "small")):
        assert await place.put_file(_put(tmp_path, data, name), mode="create")
        assert not await place.put_file(_put(tmp_path, data, name), mode="create")

    assert odd.objects == {"x/large": content, "x/small": b"small"}
    assert odd.uploads == {}


async def test_what_a_store_does_not_understand_is_asked_once(odd: "OddStore", tmp_path: Path) -> None:
    odd.checksums = "refuse"
    place = _open(odd)
    for n in range(3):
        await place.put_bytes(f"{n}", b"data")

    assert odd.count("PUT") == 4
    assert odd.count("GET") == 3  # read back, since nothing says what arrived


@pytest.mark.parametrize("checksums", ["ignore", "refuse"])
async def test_a_copy_that_is_not_the_file_is_removed(
    odd: "OddStore", tmp_path: Path, content: bytes, checksums: str
) -> None:
    odd.checksums, odd.spoils = checksums, True

    for data in (b"small", content):
        with pytest.raises(StoreError, match="other bytes arrived"):
            await _open(odd).put_file(_put(tmp_path, data), mode="create")

    assert odd.objects == {}


@pytest.mark.parametrize("fault", ["503", "503 0", "reset", "lost"])
@pytest.mark.parametrize("step", [("POST", "uploads"), ("PUT", "partNumber"), ("POST", "uploadId")])
async def test_an_upload_survives_what_passes(
    odd: "OddStore", tmp_path: Path, content: bytes, fault: str, step: tuple[str, str]
) -> None:
    odd.faults = [(*step, fault)]
    told: list[int] = []

    await _open(odd).put_file(_put(tmp_path, content), mode="create", on_bytes=told.append)

    assert odd.faults == []
    assert odd.objects == {"x/k": content}
    assert sum(told) in {len(content), 0}  # none are ours where the answer to the last step was lost


@pytest.mark.parametrize("fault", ["503", "reset", "lost"])
async def test_a_small_put_survives_what_passes(odd: "OddStore", tmp_path: Path, fault: str) -> None:
    odd.faults = [("PUT", "", fault)]

    await _open(odd).put_file(_put(tmp_path, b"small"), mode="create")

    assert odd.objects == {"x/k": b"small"}
    assert odd.count("PUT") == 2


async def test_an_error_after_the_first_words_of_success_is_one(
    odd: "OddStore", tmp_path: Path, content: bytes
) -> None:
    odd.faults = [("POST", "uploadId", "late")]

    assert await _open(odd).put_file(_put(tmp_path, content), mode="create")

    assert odd.count("POST", "uploadId") == 2


async def test_a_broken_off_upload_is_gone_on_with(odd: "OddStore", tmp_path: Path, content: bytes) -> None:
    odd.faults = [("POST", "uploadId", "403")]
    put = _put(tmp_path, content)
    with pytest.raises(StoreError, match="s3://b/x/k: access denied"):
        await _open(odd).put_file(put, mode="create", part_sha256=_parts(content))
    [(_, parts, _)] = odd.uploads.values()
    del parts[2]
    parts[3] = parts[3][:-1] + b"?"
    sent = odd.count("PUT", "partNumber")
    told: list[int] = []

    await _open(odd).put_file(put, mode="create", on_bytes=told.append)

    assert odd.count("PUT", "partNumber") == sent + 2
    assert odd.objects == {"x/k": content}
    assert sum(told) == len(content)


async def test_a_foreign_upload_of_the_key_is_not_gone_on_with(
    odd: "OddStore", tmp_path: Path, content: bytes
) -> None:
    odd.uploads["foreign"] = ("x/k", {1: b"in smaller parts"}, True)
    odd.uploads["neighbour"] = ("x/kk", {1: b"of another key"}, True)

    await _open(odd).put_file(_put(tmp_path, content), mode="create")

    assert odd.objects == {"x/k": content}
    assert list(odd.uploads) == ["neighbour"]


async def test_an_upload_that_will_not_be_joined_is_begun_anew(
    odd: "OddStore", tmp_path: Path, content: bytes
) -> None:
    odd.uploads["odd"] = ("x/k", {1: content[:PART_BYTES]}, True)
    odd.faults = [("PUT", "partNumber", "400")]

    await _open(odd).put_file(_put(tmp_path, content), mode="create")

    assert odd.objects == {"x/k": content}


@pytest.mark.parametrize("conditions", ["honour", "ignore"])
async def test_two_uploads_of_one_file_at_once_are_one_object(
    odd: "OddStore", tmp_path: Path, content: bytes, conditions: str
) -> None:
    odd.conditions = conditions
    for data, name in ((content, "large"), (b"small", "small")):
        put = _put(tmp_path, data, name)

        await asyncio.gather(*(_open(odd).put_file(put, mode="create") for _ in range(3)))

    assert odd.objects == {"x/large": content, "x/small": b"small"}
    assert odd.uploads == {}


async def test_the_real_server_takes_uploads_at_once_and_again(
    s3: S3Server, access: S3Access, tmp_path: Path, content: bytes
) -> None:
    put, parts = _put(tmp_path, content), _parts(content)
    places = [open_place(f"s3://{s3.bucket}/{tmp_path.name}/at-once", access=access) for _ in range(3)]

    done = await asyncio.gather(*(one.put_file(put, mode="create", part_sha256=parts) for one in places))

    assert any(done)
    assert await places[0].holds("k", sha256=put.sha256, size=put.size, part_sha256=parts)
    assert not await places[0].holds("k", sha256=put.sha256, size=put.size, part_sha256=parts[::-1])
    assert await places[0].stale_uploads(0) == ()


async def test_left_uploads_are_listed_and_given_up(odd: "OddStore", tmp_path: Path, content: bytes) -> None:
    odd.uploads["left"] = ("x/sub/k", {}, True)
    odd.uploads["of another place"] = ("y/k", {}, True)
    place = _open(odd)

    [found] = await place.stale_uploads(3600)
    for _ in range(2):
        await place.abort_upload(found)

    assert (found.name, found.begun.year) == ("sub/k", 2026)
    assert list(odd.uploads) == ["of another place"]
    assert await place.stale_uploads(10**9) == ()


async def test_a_large_file_that_changed_at_equal_length_is_refused(
    odd: "OddStore", tmp_path: Path, content: bytes
) -> None:
    put = _put(tmp_path, content)
    put.file.write_bytes(content[:-1] + b"?")

    for parts in ((), _parts(content)):
        with pytest.raises(SpoiledFile, match="no longer the bytes"):
            await _open(odd).put_file(put, mode="create", part_sha256=parts)

    assert odd.objects == {}
    assert odd.uploads == {}


async def test_a_store_that_is_down_is_named_in_the_end(odd: "OddStore", tmp_path: Path) -> None:
    odd.faults = [("PUT", "", "503")] * 9

    with pytest.raises(StoreError, match="s3://b/x/k: answered 503 SlowDown"):
        await _open(odd).put_file(_put(tmp_path, b"small"), mode="create")


async def test_no_secret_and_no_signature_is_told(
    odd: "OddStore", tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    odd.faults = [("PUT", "", "503"), ("PUT", "", "403")]

    with pytest.raises(StoreError) as caught:
        await _open(odd).put_file(_put(tmp_path, b"small"), mode="create")
    place = _open(odd)
    told = "".join(traceback.format_exception(caught.value)) + caplog.text + repr(place.__dict__)

    assert odd.access.secret.get_secret_value() not in told
    assert "Signature" not in told


async def test_all_files_get_their_chance_and_the_first_failure_is_told(
    odd: "OddStore", tmp_path: Path
) -> None:
    puts = [_put(tmp_path, f"{n}".encode(), f"job/{n}") for n in range(6)]
    puts[1].file.unlink()

    with pytest.raises(StoreError, match="file-1-job-1: No such file"):
        await _open(odd).put_all(puts, ("job/p.json", b"{}"), guard=_nothing)

    assert sorted(odd.objects) == [f"x/job/{n}" for n in (0, 2, 3, 4, 5)]


async def test_files_go_over_tls_to_a_server_that_is_trusted(
    odd_tls: "OddStore", tmp_path: Path, content: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "cert.pem"))
    told: list[int] = []

    for data, name in ((content, "large"), (b"small", "small"), (b"", "empty")):
        await _open(odd_tls).put_file(_put(tmp_path, data, name), mode="create", on_bytes=told.append)

    assert odd_tls.objects == {"x/large": content, "x/small": b"small", "x/empty": b""}
    assert sum(told) == len(content) + 5


async def test_a_certificate_that_nobody_trusts_is_named(odd_tls: "OddStore", tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="TLS certificate is not trusted"):
        await _open(odd_tls).put_file(_put(tmp_path, b"small"), mode="create")

    assert odd_tls.requests == []


async def test_a_cancel_leaves_an_upload_that_the_next_goes_on_with(
    odd: "OddStore", tmp_path: Path, content: bytes
) -> None:
    odd.faults = [("POST", "uploadId", "503 60")]
    put = _put(tmp_path, content)
    begun = asyncio.create_task(_open(odd).put_file(put, mode="create"))
    while odd.faults:
        await SystemClock().sleep(0.01)

    begun.cancel()
    with pytest.raises(asyncio.CancelledError):
        await begun
    await _open(odd).put_file(put, mode="create")

    assert odd.count("PUT", "partNumber") == 3
    assert odd.objects == {"x/k": content}


async def test_a_part_that_changed_on_the_way_goes_again(
    odd: "OddStore", tmp_path: Path, content: bytes
) -> None:
    odd.faults = [("PUT", "partNumber", "400 0 BadDigest"), ("PUT", "", "400 0 BadDigest")]
    told: list[int] = []

    for data, name in ((content, "large"), (b"small", "small")):
        await _open(odd).put_file(_put(tmp_path, data, name), mode="create", on_bytes=told.append)

    assert odd.objects == {"x/large": content, "x/small": b"small"}
    assert sum(told) == len(content) + len(b"small")


async def test_a_guard_that_refuses_ends_a_large_upload_before_it_is_seen(
    odd: "OddStore", tmp_path: Path, content: bytes
) -> None:
    asked: list[int] = []

    def guard() -> None:
        asked.append(len(asked))
        if len(asked) == 5:
            raise StaleClaim("another owner has the job now")

    with pytest.raises(StaleClaim):
        await _open(odd).put_all([_put(tmp_path, content)], ("p.json", b"{}"), guard=guard)

    assert odd.objects == {}
    assert odd.count("PUT", "partNumber") == 3


async def test_a_proxy_of_the_environment_carries_an_upload(
    odd: "OddStore", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", odd.address)
    access = dataclasses.replace(odd.access, endpoint="http://store.invalid")

    await open_place("s3://b/x", access=access).put_file(_put(tmp_path, b"small"), mode="create")

    assert odd.objects == {"x/k": b"small"}


async def test_a_host_that_is_not_there_is_named(odd: "OddStore", tmp_path: Path) -> None:
    access = dataclasses.replace(odd.access, endpoint="http://127.0.0.1:9")

    with pytest.raises(StoreError, match="s3://b/x/k: cannot be reached"):
        await open_place("s3://b/x", access=access).put_file(_put(tmp_path, b"small"), mode="create")


async def test_a_copy_is_read_back_over_what_breaks(odd: "OddStore", tmp_path: Path, content: bytes) -> None:
    odd.checksums = "ignore"
    odd.faults = [("GET", "", "cut"), ("GET", "", "503"), ("GET", "", "cut"), ("GET", "", "reset")]

    assert await _open(odd).put_file(_put(tmp_path, content), mode="create")

    assert odd.faults == []
    assert odd.objects == {"x/k": content}


async def test_something_else_that_came_first_is_not_taken_for_the_file(
    odd: "OddStore", tmp_path: Path
) -> None:
    put = _put(tmp_path, b"small")
    odd.faults = [("HEAD", "", "404 0 NoSuchKey")]
    await _open(odd).put_bytes("k", b"other")

    with pytest.raises(StoreError, match="something else lies there"):
        await _open(odd).put_file(put, mode="create")

    assert odd.objects == {"x/k": b"other"}


async def test_a_copy_that_was_not_whole_is_replaced(odd: "OddStore", tmp_path: Path, content: bytes) -> None:
    for data, name in ((content, "large"), (b"small", "small")):
        await _open(odd).put_bytes(name, data[:3])

        assert await _open(odd).put_file(_put(tmp_path, data, name), mode="create")

    assert odd.objects == {"x/large": content, "x/small": b"small"}
