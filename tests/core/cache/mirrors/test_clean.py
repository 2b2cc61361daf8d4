"""What leaves a mirror, and what never does."""

from datetime import UTC, datetime
from pathlib import Path

from botocore.session import Session

from comfyfarm.cache.mirrors.add import FileFacts, add_file
from comfyfarm.cache.mirrors.clean import DAY_S, Rubbish, find_rubbish, find_unneeded, remove_rubbish, titles
from comfyfarm.cache.mirrors.entry import meta_key, mirror_key
from comfyfarm.cache.mirrors.inventory import Inventory, take_inventory
from comfyfarm.cache.mirrors.verify import everything, verify
from comfyfarm.cache.places.place import Guard, Listed, ObjectPlace
from comfyfarm.clock import SystemClock
from infra.s3_server import S3Server

_NOW = 1_000_000_000.0


def _listed(age_days: float, size: int = 5) -> Listed:
    return Listed("name", size, datetime.fromtimestamp(_NOW - age_days * DAY_S, UTC))


def _decide(inventory: Inventory, keep: set[str], days: float) -> Rubbish:
    return find_unneeded(inventory, keep, now=_NOW, older_than_s=days * DAY_S)


def test_only_what_is_old_and_in_no_lock_may_go() -> None:
    blobs = {"old": _listed(9), "young": _listed(1), "locked": _listed(9), "again": _listed(9)}
    metas = {
        "old": _listed(9, 1),
        "again": _listed(1, 1),
        "orphan": _listed(9, 1),
        "new-orphan": _listed(1, 1),
    }

    rubbish = _decide(Inventory(blobs, metas, ()), {"locked", "elsewhere"}, 7)

    assert [one.sha256 for one in rubbish.files] == ["old", "orphan"]
    assert [(one.size, one.has_file, one.has_entry) for one in rubbish.files] == [
        (5, True, True),
        (0, False, True),
    ]
    assert (rubbish.kept, rubbish.too_young, rubbish.size_bytes) == (1, 3, 5)


def test_an_age_of_nothing_takes_all_that_is_in_no_lock() -> None:
    inventory = Inventory({"one": _listed(0), "kept": _listed(0)}, {}, ())
    assert [one.sha256 for one in _decide(inventory, {"kept"}, 0).files] == ["one"]


async def _three(mirror: ObjectPlace, tmp_path: Path) -> list[str]:
    shas = []
    for name in ("kept", "unneeded", "orphan"):
        (tmp_path / name).write_bytes(name.encode() * 9)
        shas.append((await add_file(mirror, tmp_path / name, FileFacts((name,), "loras"))).sha256)
    await mirror.remove([mirror_key(shas[2])], guard=lambda: None)
    return shas


class _Later(SystemClock):
    """A month later."""

    def now(self) -> float:
        return super().now() + 30 * DAY_S


async def _rubbish(mirror: ObjectPlace, keep: set[str]) -> Rubbish:
    return await find_rubbish(mirror, await take_inventory(mirror), keep, older_than_s=DAY_S, clock=_Later())


async def test_what_no_lock_names_goes_and_the_rest_is_whole(mirror: ObjectPlace, tmp_path: Path) -> None:
    kept, unneeded, orphan = await _three(mirror, tmp_path)
    rubbish = await _rubbish(mirror, {kept})
    assert {one.sha256 for one in rubbish.files} == {unneeded, orphan}
    assert (await titles(mirror, rubbish.files))[unneeded] == "loras/unneeded"

    gone = await remove_rubbish(mirror, rubbish)

    assert gone == rubbish.files
    assert everything(await take_inventory(mirror)) == (kept,)
    assert (await verify(mirror, [kept], deep=True)).problems == ()


async def test_a_clean_up_of_today_takes_nothing(mirror: ObjectPlace, tmp_path: Path) -> None:
    await _three(mirror, tmp_path)
    rubbish = await find_rubbish(mirror, await take_inventory(mirror), set(), older_than_s=DAY_S)
    assert (rubbish.files, rubbish.too_young) == ((), 3)


async def test_what_is_put_in_again_meanwhile_stays(mirror: ObjectPlace, tmp_path: Path) -> None:
    kept, unneeded, _ = await _three(mirror, tmp_path)
    rubbish = await _rubbish(mirror, {kept})
    remove = mirror.remove

    async def removed_then_added(names: list[str], *, guard: Guard) -> None:
        await remove(names, guard=guard)
        if names == [meta_key(unneeded)]:
            await add_file(mirror, tmp_path / "unneeded")

    mirror.remove = removed_then_added  # type: ignore[method-assign,assignment]
    gone = await remove_rubbish(mirror, rubbish)

    assert unneeded not in {one.sha256 for one in gone}
    assert (await verify(mirror, [unneeded], deep=True)).problems == ()


async def _add_until_it_looks_newer(mirror: ObjectPlace, file: Path, sha256: str) -> None:
    """Some stores tell whole seconds only."""
    before = (await take_inventory(mirror)).metas[sha256].modified
    while (await take_inventory(mirror)).metas[sha256].modified == before:
        await add_file(mirror, file)


async def test_what_is_put_in_again_after_the_decision_stays_with_its_entry(
    mirror: ObjectPlace, tmp_path: Path
) -> None:
    kept, unneeded, orphan = await _three(mirror, tmp_path)
    rubbish = await _rubbish(mirror, {kept})
    assert {one.sha256 for one in rubbish.files} == {unneeded, orphan}
    await _add_until_it_looks_newer(mirror, tmp_path / "unneeded", unneeded)

    gone = await remove_rubbish(mirror, rubbish)

    assert {one.sha256 for one in gone} == {orphan}
    inventory = await take_inventory(mirror)
    assert unneeded in inventory.blobs
    assert unneeded in inventory.metas
    assert (await verify(mirror, [unneeded], deep=True)).problems == ()


async def test_a_file_that_comes_while_its_lone_entry_is_to_go_stays(
    mirror: ObjectPlace, tmp_path: Path
) -> None:
    kept, _, orphan = await _three(mirror, tmp_path)
    rubbish = await _rubbish(mirror, {kept})
    await add_file(mirror, tmp_path / "orphan")

    gone = await remove_rubbish(mirror, rubbish)

    assert orphan not in {one.sha256 for one in gone}
    assert (await verify(mirror, [orphan], deep=True)).problems == ()


async def test_a_removal_that_is_cut_short_leaves_nothing_described_that_is_not_there(
    mirror: ObjectPlace, tmp_path: Path
) -> None:
    kept, unneeded, _ = await _three(mirror, tmp_path)
    only = (await _rubbish(mirror, {kept}))._replace(uploads=())
    remove = mirror.remove

    class Killed(Exception):
        pass

    async def once(names: list[str], *, guard: Guard) -> None:
        await remove(names, guard=guard)
        if names == [meta_key(unneeded)]:
            raise Killed

    mirror.remove = once  # type: ignore[method-assign,assignment]
    try:
        await remove_rubbish(
            mirror, only._replace(files=tuple(f for f in only.files if f.sha256 == unneeded))
        )
    except Killed:
        mirror.remove = remove  # type: ignore[method-assign]

    inventory = await take_inventory(mirror)
    assert unneeded in inventory.blobs
    assert unneeded not in inventory.metas
    await remove_rubbish(mirror, await _rubbish(mirror, {kept}))
    assert everything(await take_inventory(mirror)) == (kept,)


async def test_a_foreign_file_is_left_alone(mirror: ObjectPlace, tmp_path: Path) -> None:
    for name in ("meta/notes.txt", "sha256/ab/readme", f"sha256/00/{'ab' * 32}"):
        await mirror.put_bytes(name, b"mine")

    inventory = await take_inventory(mirror)

    assert everything(inventory) == ()
    assert len(inventory.foreign) == 3


async def test_an_upload_that_was_given_up_goes(s3: S3Server, bucket: ObjectPlace, tmp_path: Path) -> None:
    client = Session().create_client(
        "s3",
        endpoint_url=s3.endpoint,
        aws_access_key_id=s3.access_key,
        aws_secret_access_key=s3.secret_key,
        region_name=s3.region,
    )
    client.create_multipart_upload(Bucket=s3.bucket, Key=f"{tmp_path.name}/{mirror_key('ab' * 32)}")
    inventory = await take_inventory(bucket)
    assert (await find_rubbish(bucket, inventory, set(), older_than_s=DAY_S)).uploads == ()

    rubbish = await find_rubbish(bucket, inventory, set(), older_than_s=0)
    assert [upload.name for upload in rubbish.uploads] == [mirror_key("ab" * 32)]
    await remove_rubbish(bucket, rubbish)

    assert (await find_rubbish(bucket, inventory, set(), older_than_s=0)).uploads == ()
    client.close()
