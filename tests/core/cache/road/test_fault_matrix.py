"""Every fault, at every tier, in every order: the right bytes or a named error, and never a wrong file."""

import hashlib
import json
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from comfyfarm.cache.hydrate import HydrateReport, hydrate
from comfyfarm.cache.keeper.keeper import Keeper
from comfyfarm.cache.mirrors.add import add_file
from comfyfarm.cache.mirrors.entry import MirrorEntry, meta_key
from comfyfarm.cache.mirrors.signed import signed_file
from comfyfarm.cache.places.objects import open_place
from comfyfarm.cache.supply import Supply
from comfyfarm.clock import SystemClock
from comfyfarm.errors import CorruptBytes, TransferError

if TYPE_CHECKING:
    from tests.core.cache.road.conftest import Act, Ask, Depot, ModelFile

MIB = 1 << 20
PART = 16 * MIB
SECRET = "5ecret"
HTML = b"<!DOCTYPE html><html><title>Log in</title></html>"
POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 4198401\n"
TIERS = ("peer", "mirror", "signed", "web")

pytestmark = pytest.mark.usefixtures("quick", "watcher")

LASTING: Mapping[str, tuple[Mapping[str, object], str]] = {
    "reset": ({"sends": 1000, "ending": "reset"}, "the connection"),
    "truncated": ({"sends": 1000, "ending": "close"}, "the connection"),
    "503": ({"status": 503, "body": b""}, "answered 503"),
    "stall": ({"sends": 0, "ending": "hold"}, "nothing|silent|stall"),
    "corrupt": ({"flips": 2 * MIB}, "other bytes: their SHA-256 is"),
    "expired": ({"status": 403, "body": b""}, "access denied"),
    "login page": ({"status": 200, "body": HTML, "kind": "text/html"}, "bytes of text/html.*web page"),
    "LFS pointer": ({"status": 200, "body": POINTER}, "a Git LFS pointer"),
    "gone": ({"status": 404, "body": b""}, "not there"),
}
"""What a source does to every request, and what is said of it then."""
USUAL = {"503", "corrupt", "expired", "login page"}


def at(tier: str, depot: "Depot", file: "ModelFile", folder: Path) -> tuple[Supply, tuple[str, ...]]:
    """How a depot is named as a tier: in what the user says, and among the file's sources."""
    match tier:
        case "peer":
            return Supply(peers=(depot.url,)), ()
        case "mirror":
            return Supply(mirror=f"{depot.url}/mirror?token={SECRET}"), ()
        case "signed":
            address = f"{depot.url}/signed/{file.sha256}?X-Amz-Signature={SECRET}"
            listed = signed_file({file.sha256: address}, expires_at=SystemClock().now() + 3600)
            (folder / "signed.json").write_text(listed.text())
            return Supply(signed=str(folder / "signed.json")), ()
        case _:
            return Supply(), (f"{depot.url}/web/{file.sha256}?sig={SECRET}",)


async def run(keeper: Keeper, file: "ModelFile", supply: Supply, *sources: str) -> HydrateReport:
    return await hydrate([file.at(*sources)], supply=supply, keeper=keeper)


def check_no_secret(caplog: pytest.LogCaptureFixture, error: BaseException | None = None) -> None:
    assert SECRET not in caplog.text
    while error is not None:
        assert SECRET not in f"{error!r} {error}"
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)


@pytest.mark.parametrize(
    ("tier", "fault"),
    [(tier, fault) for tier in TIERS for fault in LASTING if tier in {"web", "peer"} or fault in USUAL],
)
async def test_a_source_that_fails_is_followed_by_the_next_which_gives_no_byte_twice(
    tier: str,
    fault: str,
    make_depot: Callable[..., "Depot"],
    file: "ModelFile",
    act: type["Act"],
    keeper: Keeper,
    be_hasty: Callable[[], None],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    if fault == "stall":
        be_hasty()
    bad, good = make_depot(file), make_depot(file)
    bad.act = lambda ask: act(**LASTING[fault][0])  # type: ignore[arg-type]
    supply, sources = at(tier, bad, file, tmp_path)

    await run(keeper, file, supply, *sources, f"{good.url}/{file.sha256}?sig={SECRET}")

    assert keeper.blobs.path(file.sha256).read_bytes() == file.data
    assert bad.asks
    assert good.sent_bytes() == file.size
    # A source that is damaged is not asked again while there is another.
    assert bad.sent_bytes() <= file.size
    check_no_secret(caplog)


@pytest.mark.parametrize("tier", TIERS)
async def test_a_source_behind_a_good_one_is_never_asked(
    tier: str,
    make_depot: Callable[..., "Depot"],
    file: "ModelFile",
    act: type["Act"],
    keeper: Keeper,
    tmp_path: Path,
) -> None:
    good, bad = make_depot(file), make_depot(file)
    bad.act = lambda ask: act(flips=0)
    supply, sources = at(tier, good, file, tmp_path)

    await run(keeper, file, supply, *sources, f"{bad.url}/{file.sha256}")

    assert keeper.blobs.path(file.sha256).read_bytes() == file.data
    assert (good.sent_bytes(), bad.asks) == (file.size, [])


@pytest.mark.parametrize(
    ("tier", "fault"), [*(("web", fault) for fault in LASTING), ("peer", "reset"), ("mirror", "corrupt"),
                        ("signed", "expired"), ("signed", "corrupt"), ("peer", "corrupt")],
)  # fmt: skip
async def test_the_only_source_is_named_with_its_failure(
    tier: str,
    fault: str,
    make_depot: Callable[..., "Depot"],
    file: "ModelFile",
    act: type["Act"],
    keeper: Keeper,
    be_hasty: Callable[[], None],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    if fault == "stall":
        be_hasty()
    bad = make_depot(file)
    does, words = LASTING[fault]
    bad.act = lambda ask: act(**does)  # type: ignore[arg-type]
    supply, sources = at(tier, bad, file, tmp_path)

    with pytest.raises(TransferError, match=words) as caught:
        await run(keeper, file, supply, *sources)

    named = str(tmp_path / "signed.json") if tier == "signed" else bad.url
    first, *lines = str(caught.value).splitlines()
    assert first == f"no source gave {file.sha256} ({file.size} bytes):"
    assert len(lines) == 1
    assert lines[0].startswith(f"  {named}")
    assert isinstance(caught.value, CorruptBytes) == (fault == "corrupt")
    assert not keeper.blobs.has(file.sha256)
    # One full refetch at most, where nobody knows which part is bad.
    assert bad.sent_bytes() <= 2 * file.size
    check_no_secret(caplog, caught.value)


async def test_every_source_is_named_with_its_own_failure(
    make_depot: Callable[..., "Depot"],
    file: "ModelFile",
    act: type["Act"],
    keeper: Keeper,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    (tmp_path / "short").write_bytes(file.data[:-1])
    faults = {"peer": "503", "mirror": "gone", "signed": "expired", "web": "login page"}
    named: dict[str, Any] = {}
    sources: tuple[str, ...] = ()
    for tier, fault in faults.items():
        depot = make_depot(file)
        depot.act = lambda ask, fault=fault: act(**LASTING[fault][0])  # type: ignore[misc,arg-type]
        supply, sources = at(tier, depot, file, tmp_path)
        named |= {name: value for name, value in vars(supply).items() if value}

    with pytest.raises(TransferError) as caught:
        await run(keeper, file, Supply(**named), str(tmp_path / "short"), *sources)

    lines = str(caught.value).splitlines()[1:]
    words = [f"{file.size - 1} bytes", "answered 503", "not there", "access denied", "text/html"]
    assert len(lines) == len(words)
    assert all(word in line for word, line in zip(words, lines, strict=True))
    check_no_secret(caplog, caught.value)


PASSING: Mapping[str, tuple[Mapping[str, object], int]] = {
    "reset": ({"sends": MIB // 2, "ending": "reset"}, MIB),
    "truncated": ({"sends": MIB // 2, "ending": "close"}, 0),
    "503": ({"status": 503, "body": b""}, 0),
    "stall": ({"sends": MIB // 2, "ending": "hold"}, MIB),
    "slow part": ({"rate": 1e6}, MIB),
    "corrupt in transit": ({"flips": 2 * MIB}, -1),
    "another file": ({"etag": '"v2"'}, -1),
}
"""What a source does to one request, and how many bytes may be lost by it; -1: the file."""


@pytest.mark.parametrize("fault", PASSING)
async def test_a_passing_fault_of_the_only_source_costs_what_was_lost_and_no_more(
    fault: str,
    make_depot: Callable[..., "Depot"],
    file: "ModelFile",
    act: type["Act"],
    keeper: Keeper,
    be_hasty: Callable[[], None],
) -> None:
    if fault in {"stall", "slow part"}:
        be_hasty()
    depot = make_depot(file)
    does, lost = PASSING[fault]
    struck: list[int] = []

    def once(ask: "Ask") -> "Act":
        if ask.start != 2 * MIB or struck:
            return act()
        struck.append(ask.nth)
        return act(**does)  # type: ignore[arg-type]

    depot.act = once
    await run(keeper, file, Supply(), f"{depot.url}/{file.sha256}")

    assert struck
    assert keeper.blobs.path(file.sha256).read_bytes() == file.data
    assert depot.sent_bytes() - file.size <= (file.size if lost < 0 else lost)


async def test_ranges_that_are_honoured_now_and_then_are_none(
    make_depot: Callable[..., "Depot"], file: "ModelFile", act: type["Act"], keeper: Keeper
) -> None:
    whole, good = make_depot(file), make_depot(file)
    whole.act = lambda ask: act(is_whole=ask.start > 0)
    only = f"{whole.url}/{file.sha256}"

    with pytest.raises(TransferError, match="answers some ranges with the whole file"):
        await run(keeper, file, Supply(), only)
    await run(keeper, file, Supply(), only, f"{good.url}/{file.sha256}")

    assert keeper.blobs.path(file.sha256).read_bytes() == file.data
    assert good.sent_bytes() <= file.size  # what came in ranges was good


async def test_a_server_without_ranges_gives_the_whole_file_once(
    make_depot: Callable[..., "Depot"], file: "ModelFile", act: type["Act"], keeper: Keeper
) -> None:
    depot = make_depot(file)
    depot.act = lambda ask: act(is_whole=True)

    await run(keeper, file, Supply(), f"{depot.url}/{file.sha256}")

    assert keeper.blobs.path(file.sha256).read_bytes() == file.data
    assert (len(depot.asks), depot.sent_bytes()) == (1, file.size)


async def test_a_signed_address_that_expires_in_mid_transfer_is_renewed(
    make_depot: Callable[..., "Depot"],
    file: "ModelFile",
    act: type["Act"],
    keeper: Keeper,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    depot = make_depot(file)
    supply, _ = at("signed", depot, file, tmp_path)

    def expiring(ask: "Ask") -> "Act":
        is_old = SECRET in ask.path
        if is_old and ask.nth > 2:
            text = (tmp_path / "signed.json").read_text()
            (tmp_path / "new").write_text(text.replace(SECRET, f"new-{SECRET[:3]}"))
            (tmp_path / "new").replace(tmp_path / "signed.json")
            return act(status=403, body=b"")
        return act()

    depot.act = expiring
    await run(keeper, file, supply)

    assert keeper.blobs.path(file.sha256).read_bytes() == file.data
    assert depot.sent_bytes() == file.size
    assert any(SECRET not in ask.path for ask in depot.asks)
    check_no_secret(caplog)


@pytest.mark.parametrize("made", ["short", "absent", "other bytes", "a folder"])
async def test_a_file_of_this_machine_that_is_none_is_followed_by_the_next(
    made: str, make_depot: Callable[..., "Depot"], file: "ModelFile", keeper: Keeper, tmp_path: Path
) -> None:
    good = make_depot(file)
    path = tmp_path / "source"
    if made == "a folder":
        path.mkdir()
    elif made != "absent":
        path.write_bytes(file.data[:-1] if made == "short" else bytes(file.size))

    await run(keeper, file, Supply(), str(path), f"{good.url}/{file.sha256}")

    assert keeper.blobs.path(file.sha256).read_bytes() == file.data
    assert good.sent_bytes() == file.size


async def test_a_good_file_of_this_machine_asks_nobody(
    make_depot: Callable[..., "Depot"], file: "ModelFile", keeper: Keeper, tmp_path: Path
) -> None:
    depot = make_depot(file)
    (tmp_path / "source").write_bytes(file.data)

    await run(keeper, file, Supply(mirror=depot.url), f"{depot.url}/{file.sha256}", str(tmp_path / "source"))

    assert keeper.blobs.path(file.sha256).read_bytes() == file.data
    assert depot.asks == []


# --- silent corruption, and a mirror that knows each part's hash ---------------------------------------


async def mirrored(depot: "Depot", file: "ModelFile", folder: Path) -> None:
    """Lay the file into a real mirror, which the depot gives from then on."""
    (folder / "file").write_bytes(file.data)
    await add_file(open_place(str(folder / "mirror")), folder / "file")
    key = meta_key(file.sha256)
    depot.texts[f"/mirror/{key}"] = (folder / "mirror" / key).read_bytes()


def flipping(act: type["Act"], offset: int, *, times: int) -> Callable[["Ask"], "Act"]:
    left = [times]

    def flip(ask: "Ask") -> "Act":
        if ask.start <= offset < ask.end and left[0]:
            left[0] -= 1
            return act(flips=offset)
        return act()

    return flip


@pytest.mark.parametrize(("offset", "lost"), [(17 * MIB, PART), (33 * MIB + 5, MIB + 11)])
async def test_of_a_file_damaged_in_transit_only_the_bad_part_comes_again(
    offset: int,
    lost: int,
    make_depot: Callable[..., "Depot"],
    large: "ModelFile",
    act: type["Act"],
    keeper: Keeper,
    tmp_path: Path,
) -> None:
    depot = make_depot(large)
    await mirrored(depot, large, tmp_path)
    depot.act = flipping(act, offset, times=1)

    await run(keeper, large, Supply(mirror=f"{depot.url}/mirror"))

    assert keeper.blobs.path(large.sha256).read_bytes() == large.data
    assert depot.sent_bytes() == large.size + lost


async def test_a_mirror_whose_copy_is_damaged_is_completed_by_the_next_source(
    make_depot: Callable[..., "Depot"], large: "ModelFile", act: type["Act"], keeper: Keeper, tmp_path: Path
) -> None:
    depot, good = make_depot(large), make_depot(large)
    await mirrored(depot, large, tmp_path)
    depot.act = flipping(act, 17 * MIB, times=99)

    await run(keeper, large, Supply(mirror=f"{depot.url}/mirror"), f"{good.url}/{large.sha256}")

    assert keeper.blobs.path(large.sha256).read_bytes() == large.data
    assert depot.sent_bytes() == large.size + PART
    assert good.sent_bytes() == PART


async def test_a_mirror_that_stays_damaged_is_named_after_the_bad_part_came_twice(
    make_depot: Callable[..., "Depot"], large: "ModelFile", act: type["Act"], keeper: Keeper, tmp_path: Path
) -> None:
    depot = make_depot(large)
    await mirrored(depot, large, tmp_path)
    depot.act = flipping(act, 17 * MIB, times=99)

    with pytest.raises(CorruptBytes, match="other bytes: their SHA-256 is"):
        await run(keeper, large, Supply(mirror=f"{depot.url}/mirror"))

    assert depot.sent_bytes() == large.size + PART
    depot.act = act_as_asked(act)
    # What was good is still here.
    await run(keeper, large, Supply(mirror=f"{depot.url}/mirror"))
    assert depot.sent_bytes() == large.size + 2 * PART
    assert keeper.blobs.path(large.sha256).read_bytes() == large.data


def act_as_asked(act: type["Act"]) -> Callable[["Ask"], "Act"]:
    return lambda ask: act()


async def test_without_part_hashes_a_damaged_file_comes_again_once(
    make_depot: Callable[..., "Depot"], large: "ModelFile", act: type["Act"], keeper: Keeper
) -> None:
    depot = make_depot(large)
    depot.act = flipping(act, 17 * MIB, times=1)

    await run(keeper, large, Supply(mirror=f"{depot.url}/mirror"))

    assert keeper.blobs.path(large.sha256).read_bytes() == large.data
    assert depot.sent_bytes() == 2 * large.size


@pytest.mark.parametrize("spoiled", [(), (0,), (0, 1, 2)])
@pytest.mark.parametrize("is_damaged", [False, True])
async def test_a_mirror_that_knows_wrong_part_hashes_keeps_no_good_file_away(
    spoiled: tuple[int, ...],
    is_damaged: bool,
    make_depot: Callable[..., "Depot"],
    large: "ModelFile",
    act: type["Act"],
    keeper: Keeper,
    tmp_path: Path,
) -> None:
    depot = make_depot(large)
    await mirrored(depot, large, tmp_path)
    key = f"/mirror/{meta_key(large.sha256)}"
    entry = MirrorEntry.model_validate_json(depot.texts[key])
    parts = [("0" * 64 if n in spoiled else part) for n, part in enumerate(entry.parts)]
    # Without any wrong hash: one that is right for a damaged part, which looks whole then.
    if not spoiled:
        damaged = bytearray(large.data[PART : 2 * PART])
        damaged[MIB] ^= 1
        parts[1] = hashlib.sha256(damaged).hexdigest()
    depot.texts[key] = json.dumps(entry.model_dump(mode="json") | {"parts": parts}).encode()
    depot.act = flipping(act, 17 * MIB, times=1 if is_damaged else 0)

    await run(keeper, large, Supply(mirror=f"{depot.url}/mirror"))

    assert keeper.blobs.path(large.sha256).read_bytes() == large.data
    assert depot.sent_bytes() <= large.size * (2 if is_damaged else 1)


async def test_what_one_source_gave_wrong_is_not_laid_at_the_next_ones_door(
    make_depot: Callable[..., "Depot"],
    large: "ModelFile",
    act: type["Act"],
    keeper: Keeper,
    caplog: pytest.LogCaptureFixture,
) -> None:
    bad, good = make_depot(large), make_depot(large)

    def failing(ask: "Ask") -> "Act":
        return act(flips=0) if ask.start < 20 * MIB else act(status=404, body=b"")

    bad.act = failing
    await run(keeper, large, Supply(mirror=f"{bad.url}/mirror"), f"{good.url}/{large.sha256}")

    assert keeper.blobs.path(large.sha256).read_bytes() == large.data
    assert bad.sent_bytes() > 0
    assert large.size <= good.sent_bytes() <= 2 * large.size
    assert "other bytes" not in caplog.text


async def test_what_an_earlier_life_left_wrong_is_not_laid_at_the_sources_door(
    make_depot: Callable[..., "Depot"],
    file: "ModelFile",
    act: type["Act"],
    keeper: Keeper,
    caplog: pytest.LogCaptureFixture,
) -> None:
    depot = make_depot(file)
    depot.act = lambda ask: act() if ask.start < MIB else act(status=404, body=b"")
    source = f"{depot.url}/{file.sha256}"
    with pytest.raises(TransferError, match="not there"):
        await run(keeper, file, Supply(connections=1), source)  # so that one part is here when the next fails
    given = depot.sent_bytes()
    with (keeper.blobs.partial(file.sha256) / "data").open("r+b") as data:
        data.write(b"lost by the disk")
    depot.act = lambda ask: act()

    await run(keeper, file, Supply(), source)

    assert given == MIB
    assert keeper.blobs.path(file.sha256).read_bytes() == file.data
    assert depot.sent_bytes() == 2 * file.size
    assert "other bytes" not in caplog.text


@pytest.mark.parametrize("place", [f"http://127.0.0.1:9/list.json?sig={SECRET}", "/absent/list.json"])
async def test_a_signed_list_that_cannot_be_read_is_one_source_that_failed(
    place: str, make_depot: Callable[..., "Depot"], file: "ModelFile", keeper: Keeper
) -> None:
    good = make_depot(file)
    supply = Supply(signed=place)

    await run(keeper, file, supply, f"{good.url}/{file.sha256}")
    keeper.evict([file.sha256])
    with pytest.raises(TransferError, match=r"/list\.json.*: ") as caught:
        await run(keeper, file, supply)

    assert keeper.blobs.has(file.sha256) is False
    assert good.sent_bytes() == file.size
    assert SECRET not in str(caught.value)


async def test_a_mirror_without_credentials_is_one_source_that_failed(
    make_depot: Callable[..., "Depot"], file: "ModelFile", keeper: Keeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    good = make_depot(file)

    await run(keeper, file, Supply(mirror="s3://models/m"), f"{good.url}/{file.sha256}")

    assert keeper.blobs.path(file.sha256).read_bytes() == file.data
