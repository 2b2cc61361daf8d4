"""Many files from mirror and sources, each once."""

import dataclasses
import hashlib
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from comfyfarm.cache.blobs import BlobStore
from comfyfarm.cache.hydrate import hydrate, hydrate_one
from comfyfarm.cache.keeper.keeper import Bounds, Keeper
from comfyfarm.cache.mirrors.add import add_file
from comfyfarm.cache.mirrors.entry import mirror_source
from comfyfarm.cache.mirrors.signed import signed_file
from comfyfarm.cache.pinned import Pinned
from comfyfarm.cache.places.objects import S3Access, open_place
from comfyfarm.cache.supply import Suppliers, Supply
from comfyfarm.clock import SystemClock
from comfyfarm.errors import CorruptBytes, InputError, TransferError, UsageError
from infra.s3_server import S3Server

if TYPE_CHECKING:
    from tests.core.cache.conftest import Model, WebServer


def _small(model: "Model", data: bytes, *sources: str) -> "Model":
    return dataclasses.replace(
        model, sha256=hashlib.sha256(data).hexdigest(), size=len(data), sources=tuple(sources)
    )


def counting(counts: list[int]) -> Callable[[Pinned, int], None]:
    """Notes only how many bytes."""
    return lambda _model, count: counts.append(count)


@pytest.fixture
def keeper(blobs: BlobStore) -> Keeper:
    """Without bounds."""
    return Keeper(blobs, Bounds(None, 0))


def test_sources_come_tier_by_tier(model: "Model", tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"x")
    pinned = _small(model, b"x", "https://host/x", str(tmp_path / "absent"), str(tmp_path / "x"), "s3://b/x")
    signed = tmp_path / "signed.json"
    in_an_hour = SystemClock().now() + 3600
    signed.write_text(signed_file({pinned.sha256: "https://host/s"}, expires_at=in_an_hour).text())
    suppliers = Suppliers(Supply(mirror=str(tmp_path / "m"), signed=str(signed)), cache_root=tmp_path)

    offers = list(suppliers.offers(pinned, lambda: None))

    assert [(offer.tier, offer.address) for offer in offers] == [
        ("disk", str(tmp_path / "x")),
        ("mirror", mirror_source(str(tmp_path / "m"), pinned.sha256)),
        ("signed", f"{signed}#{pinned.sha256[:12]}"),
        ("web", "https://host/x"),
        ("web", "s3://b/x"),
        ("disk", str(tmp_path / "absent")),
    ]


@pytest.mark.parametrize("kind", ["folder", "bucket", "web"])
async def test_files_come_from_every_kind_of_mirror(
    kind: str,
    s3: S3Server,
    access: S3Access,
    web: "WebServer",
    model: "Model",
    content: bytes,
    blobs: BlobStore,
    keeper: Keeper,
    tmp_path: Path,
) -> None:
    files = [content, b"lora", b"vae"]
    models = [_small(model, data) for data in files]
    mirror = {
        "folder": str(tmp_path / "mirror"),
        "bucket": f"s3://{s3.bucket}/{tmp_path.name}",
        "web": web.url("/mirror"),
    }[kind]
    for data, pinned in zip(files, models, strict=True):
        web.files[f"/mirror/sha256/{pinned.sha256[:2]}/{pinned.sha256}"] = data
        if kind != "web":
            (tmp_path / "file").write_bytes(data)
            await add_file(open_place(mirror, access=access), tmp_path / "file")
    counted: list[int] = []

    report = await hydrate(
        [*models, models[1]],
        supply=Supply(mirror=mirror, access=access),
        keeper=keeper,
        on_bytes=counting(counted),
    )

    assert [blobs.path(pinned.sha256).read_bytes() for pinned in models] == files
    assert report.fetched == tuple(pinned.sha256 for pinned in models)
    assert report.fetched_bytes == sum(counted) == sum(map(len, files))
    assert report.reused == ()


async def test_what_is_here_is_neither_asked_for_nor_counted(
    model: "Model", blobs: BlobStore, keeper: Keeper, tmp_path: Path
) -> None:
    (tmp_path / "here").write_bytes(b"here")
    (tmp_path / "new").write_bytes(b"new")
    here = _small(model, b"here", str(tmp_path / "here"))
    new = _small(model, b"new", str(tmp_path / "new"))
    await hydrate_one(here, supply=Supply(), keeper=keeper)
    (tmp_path / "here").unlink()
    counted: list[int] = []

    report = await hydrate([here, new], supply=Supply(), keeper=keeper, on_bytes=counting(counted))

    assert (report.fetched, report.reused) == ((new.sha256,), (here.sha256,))
    assert (report.fetched_bytes, report.reused_bytes, sum(counted)) == (3, 4, 3)


async def test_what_is_here_is_read_again_on_demand_and_healed(
    model: "Model", blobs: BlobStore, keeper: Keeper, tmp_path: Path
) -> None:
    (tmp_path / "file").write_bytes(b"good")
    pinned = _small(model, b"good", str(tmp_path / "file"))
    path = (await hydrate_one(pinned, supply=Supply(), keeper=keeper)).path
    path.chmod(0o644)
    path.write_bytes(b"evil")

    assert (await hydrate([pinned], supply=Supply(), keeper=keeper)).reused == (pinned.sha256,)
    assert (await hydrate([pinned], supply=Supply(), keeper=keeper, rereads=True)).fetched == (pinned.sha256,)
    assert path.read_bytes() == b"good"
    assert (await hydrate([pinned], supply=Supply(), keeper=keeper, rereads=True)).reused == (pinned.sha256,)


async def test_the_locks_sources_stand_in_for_a_mirror_that_lacks_the_file(
    model: "Model", blobs: BlobStore, keeper: Keeper, tmp_path: Path
) -> None:
    (tmp_path / "file").write_bytes(b"data")
    sources = ("hf://repo/file", str(tmp_path / "absent"), (tmp_path / "file").as_uri())

    supply = Supply(mirror=str(tmp_path / "mirror"))
    brought = await hydrate_one(_small(model, b"data", *sources), supply=supply, keeper=keeper)

    assert brought.path.read_bytes() == b"data"


async def test_all_files_without_a_source_are_named_and_the_others_come(
    model: "Model", blobs: BlobStore, keeper: Keeper, tmp_path: Path
) -> None:
    (tmp_path / "good").write_bytes(b"good")
    (tmp_path / "bad").write_bytes(b"evil")
    good = _small(model, b"good", str(tmp_path / "good"))
    bad = _small(model, b"bad!", str(tmp_path / "bad"))
    absent = _small(model, b"absent", str(tmp_path / "absent"))

    with pytest.raises(CorruptBytes) as caught:
        await hydrate([absent, good, bad], supply=Supply(), keeper=keeper)

    assert absent.sha256 in str(caught.value)
    assert bad.sha256 in str(caught.value)
    assert [blobs.has(each.sha256) for each in (good, bad, absent)] == [True, False, False]


async def test_a_file_without_any_source_says_so(model: "Model", blobs: BlobStore, keeper: Keeper) -> None:
    with pytest.raises(TransferError, match="it has no source"):
        await hydrate_one(model, supply=Supply(), keeper=keeper)


async def test_a_mirror_of_an_unknown_kind_is_wrong_usage(
    model: "Model", blobs: BlobStore, keeper: Keeper
) -> None:
    with pytest.raises(UsageError, match="ftp://host"):
        await hydrate([model], supply=Supply(mirror="ftp://host"), keeper=keeper)


@pytest.mark.parametrize(
    "odd", ["/" + "x" * 5000, "http://[::1/x", "http://a..b/x", "http://[bad", "~nobody-of-this-name/x"]
)
async def test_a_source_that_cannot_even_be_asked_is_passed_over(
    odd: str, model: "Model", keeper: Keeper, tmp_path: Path
) -> None:
    (tmp_path / "file").write_bytes(b"data")
    pinned = _small(model, b"data", odd, (tmp_path / "file").as_uri())

    brought = await hydrate_one(pinned, supply=Supply(), keeper=keeper)

    assert brought.path.read_bytes() == b"data"


@pytest.mark.parametrize("text", [None, "no JSON", '{"version": 1}'])
async def test_a_signed_list_that_cannot_be_read_is_a_source_that_fails(
    text: str | None, web: "WebServer", model: "Model", keeper: Keeper, tmp_path: Path
) -> None:
    web.files["/x"] = b"data"
    signed = tmp_path / "signed.json"
    if text is not None:
        signed.write_text(text)
    supply = Supply(signed=str(signed))

    brought = await hydrate_one(_small(model, b"data", web.url("/x")), supply=supply, keeper=keeper)

    assert brought.path.read_bytes() == b"data"
    with pytest.raises(TransferError, match=re.escape(str(signed))):
        await hydrate_one(_small(model, b"other"), supply=supply, keeper=keeper)


async def test_a_refusal_of_a_host_that_wants_a_token_says_which(
    web: "WebServer", model: "Model", keeper: Keeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", web.address)

    with pytest.raises(TransferError, match="HF_TOKEN"):
        await hydrate_one(_small(model, b"x", web.url("/gated")), supply=Supply(), keeper=keeper)


async def test_opened_suppliers_serve_several_calls(model: "Model", keeper: Keeper, tmp_path: Path) -> None:
    suppliers = Suppliers(Supply(), cache_root=tmp_path)
    for data in (b"one", b"two"):
        (tmp_path / "file").write_bytes(data)
        pinned = _small(model, data, str(tmp_path / "file"))
        assert (await hydrate_one(pinned, supply=suppliers, keeper=keeper)).path.read_bytes() == data


async def test_peers_that_do_not_answer_are_named_in_the_end(model: "Model", keeper: Keeper) -> None:
    with pytest.raises(TransferError, match=r"http://127\.0\.0\.1:9: \S"):
        await hydrate_one(_small(model, b"x"), supply=Supply(peers=("127.0.0.1:9",)), keeper=keeper)


async def test_a_pin_of_a_wrong_size_takes_no_right_file_away(
    model: "Model", keeper: Keeper, tmp_path: Path
) -> None:
    (tmp_path / "file").write_bytes(b"data")
    pinned = _small(model, b"data", str(tmp_path / "file"))
    await hydrate_one(pinned, supply=Supply(), keeper=keeper)

    with pytest.raises(InputError, match="the lock says 5 bytes, and the file of this SHA-256 has 4"):
        await hydrate([dataclasses.replace(pinned, size=5)], supply=Supply(), keeper=keeper, rereads=True)

    assert keeper.blobs.path(pinned.sha256).read_bytes() == b"data"


async def test_what_rereading_quarantines_leaves_when_its_room_is_needed(
    model: "Model", blobs: BlobStore, tmp_path: Path
) -> None:
    keeper = Keeper(blobs, Bounds(5000, 0))
    (tmp_path / "file").write_bytes(b"g" * 4000)
    pinned = _small(model, b"g" * 4000, str(tmp_path / "file"))
    path = (await hydrate_one(pinned, supply=Supply(), keeper=keeper)).path
    path.chmod(0o644)
    path.write_bytes(b"e" * 4000)

    await hydrate([pinned], supply=Supply(), keeper=keeper, rereads=True)

    assert path.read_bytes() == b"g" * 4000
    kept = [each for each in (blobs.root / "quarantine").glob("*") if each.suffix != ".reason"]
    assert kept == []
