"""A disk that fails at any step, is full, read-only, or loses bytes: named, and whole at the next run."""

import errno
import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import Result

from comfyfarm.cache.blobs import BlobStore
from comfyfarm.cache.disk import Disk
from comfyfarm.cache.hydrate import hydrate
from comfyfarm.cache.keeper.keeper import Bounds, Keeper
from comfyfarm.cache.supply import Supply
from comfyfarm.errors import NoRoom, TryLater

if TYPE_CHECKING:
    from tests.core.cache.road.conftest import Depot, ModelFile

MIB = 1 << 20
LAST_STEP = 120
Command = Callable[..., Result]


class FailingDisk(Disk):
    """Raises an error from its n-th step on."""

    def __init__(self, at: int, code: int, *, stays: bool) -> None:
        self.steps = 0
        self._at, self._code, self._stays = at, code, stays

    def step(self, what: str, path: Path) -> None:
        """Count, and fail."""
        self.steps += 1
        if self.steps == self._at or (self._stays and self.steps > self._at):
            raise OSError(self._code, os.strerror(self._code), str(path))


@pytest.mark.parametrize("stays", [True, False])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS])
async def test_a_disk_that_fails_at_any_step_is_named_and_the_next_run_is_whole(
    code: int,
    stays: bool,
    make_file: Callable[..., "ModelFile"],
    tmp_path: Path,
) -> None:
    files = []
    for seed, size in ((90, MIB + 17), (91, 4096), (92, 300)):
        file = make_file(seed, size)
        (tmp_path / file.path).write_bytes(file.data)
        files.append(file.at(tmp_path / file.path))
    failed = steps = 0

    for at in range(1 if stays else 4, LAST_STEP, 7):
        root = tmp_path / f"cache-{at}"
        disk = FailingDisk(at, code, stays=stays)
        words = await words_of_failure(files, Keeper(BlobStore(root, disk), Bounds(None, 0)))
        failed += words is not None
        assert words is None or (str(root) in words and os.strerror(code) in words)
        steps = max(steps, disk.steps)
        for path in (root / "sha256").glob("??/*"):
            assert path.read_bytes() in {file.data for file in files}
        await hydrate(files, supply=Supply(), keeper=Keeper(BlobStore(root), Bounds(None, 0)))
        for file in files:
            assert BlobStore(root).path(file.sha256).read_bytes() == file.data
        assert list((root / ".partial").glob("*/data")) == []
        shutil.rmtree(root)

    assert failed > 3
    assert steps < LAST_STEP  # else the last steps are no longer tested


async def words_of_failure(files: list["ModelFile"], keeper: Keeper) -> str | None:
    """Of an error of ours; any other comes through."""
    try:
        await hydrate(files, supply=Supply(), keeper=keeper)
    except (TryLater, NoRoom) as exc:
        return str(exc)
    return None


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 3 MiB."""
    disk = tmp_path / "small"
    disk.mkdir()
    if os.geteuid() or not shutil.which("mount"):
        pytest.skip("only root may mount")
    if not mounted("-t", "tmpfs", "-o", "size=3m", "none", disk):
        pytest.skip("may not mount here")
    try:
        yield disk
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def mounted(*words: object) -> bool:
    return subprocess.run(["mount", *map(str, words)], check=False, capture_output=True).returncode == 0


def test_a_real_disk_that_is_full_or_read_only_is_named_by_the_command(
    small_disk: Path,
    make_depot: Callable[..., "Depot"],
    make_file: Callable[..., "ModelFile"],
    lock_of: Callable[..., Path],
    command: Command,
) -> None:
    file = make_file(93, 2 * MIB)
    depot = make_depot(file)
    lock, cache = lock_of(file.at(f"{depot.url}/{file.sha256}")), small_disk / "cache"
    (small_disk / "junk").write_bytes(bytes(2 * MIB))

    full = command("hydrate", "--lock", lock, "--cache", cache)
    (small_disk / "junk").unlink()
    assert mounted("-o", "remount,ro", small_disk)
    read_only = command("hydrate", "--lock", lock, "--cache", cache)
    assert mounted("-o", "remount,rw", small_disk)
    fine = command("hydrate", "--lock", lock, "--cache", cache)
    assert mounted("-o", "remount,ro", small_disk)
    again = command("hydrate", "--lock", lock, "--cache", cache, "--link-into", lock.parent / "models")

    assert (full.exit_code, read_only.exit_code, fine.exit_code) == (2, 3, 0)
    assert str(cache) in full.stderr
    assert f"{cache}: the cache cannot be written: Read-only file system" in read_only.stderr
    assert BlobStore(cache).path(file.sha256).read_bytes() == file.data
    assert depot.sent_bytes() == file.size
    assert again.exit_code == 0, again.stderr
    assert (lock.parent / "models" / file.folder / file.path).read_bytes() == file.data


def spoil(path: Path) -> None:
    """As a disk does that loses bytes: the size stays, in all hard links."""
    path.chmod(0o644)
    with path.open("r+b") as file:
        file.seek(1000)
        file.write(b"lost")
    path.chmod(0o444)


@pytest.mark.parametrize("link", ["symbolic", "hard"])
def test_bytes_that_are_lost_in_the_cache_are_found_and_fetched_anew(
    link: str,
    make_depot: Callable[..., "Depot"],
    make_file: Callable[..., "ModelFile"],
    lock_of: Callable[..., Path],
    command: Command,
    blobs: BlobStore,
    tmp_path: Path,
) -> None:
    file = make_file(94)
    depot = make_depot(file)
    models = tmp_path / "models"
    lock = lock_of(file.at(f"{depot.url}/{file.sha256}"))
    words = ("hydrate", "--lock", lock, "--link-into", models, "--link", link)
    assert command(*words).exit_code == 0
    linked = models / file.folder / file.path

    spoil(blobs.path(file.sha256))
    healed = command(*words)

    assert healed.exit_code == 0, healed.stderr
    assert blobs.path(file.sha256).read_bytes() == linked.read_bytes() == file.data
    assert depot.sent_bytes() == 2 * file.size
    assert (blobs.root / "quarantine" / file.sha256).stat().st_size == file.size

    spoil(blobs.path(file.sha256))
    found = command("cache", "verify")
    assert found.exit_code == 3
    assert file.sha256 in found.stdout + found.stderr
    assert not blobs.has(file.sha256)
    assert command(*words).exit_code == 0
    assert blobs.path(file.sha256).read_bytes() == linked.read_bytes() == file.data
    assert command("cache", "verify").exit_code == 0


def test_a_spoiled_file_that_cannot_be_taken_away_is_named(
    small_disk: Path,
    make_file: Callable[..., "ModelFile"],
    lock_of: Callable[..., Path],
    command: Command,
    tmp_path: Path,
) -> None:
    file, cache = make_file(95), small_disk / "cache"
    (tmp_path / "source").write_bytes(file.data)
    lock = lock_of(file.at(tmp_path / "source"))
    assert command("hydrate", "--lock", lock, "--cache", cache).exit_code == 0
    spoil(BlobStore(cache).path(file.sha256))
    assert mounted("-o", "remount,ro", small_disk)

    told = command("hydrate", "--lock", lock, "--cache", cache)

    assert told.exit_code == 3
    assert str(BlobStore(cache).path(file.sha256)) in told.stderr
    assert "Read-only file system" in told.stderr
    assert mounted("-o", "remount,rw", small_disk)
    assert command("hydrate", "--lock", lock, "--cache", cache).exit_code == 0


def test_what_is_fetched_and_found_is_counted_by_tier(
    make_depot: Callable[..., "Depot"],
    make_file: Callable[..., "ModelFile"],
    lock_of: Callable[..., Path],
    command: Command,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    here, peered, mirrored, listed, web = [make_file(seed, 1000 + seed) for seed in range(96, 101)]
    (tmp_path / "here").write_bytes(here.data)
    peer, mirror, depot = make_depot(peered), make_depot(mirrored), make_depot(listed, web)
    signed = {"version": 1, "expires": "2999-01-01T00:00:00Z",
              "files": {listed.sha256: f"{depot.url}/{listed.sha256}?sig=5ecret"}}  # fmt: skip
    (tmp_path / "signed.json").write_text(json.dumps(signed))
    monkeypatch.setenv("COMFYFARM_PEERS", peer.url)
    lock = lock_of(here.at(tmp_path / "here"), peered, mirrored, listed, web.at(f"{depot.url}/{web.sha256}"))
    words = ("hydrate", "--lock", lock, "--mirror", mirror.url, "--signed", tmp_path / "signed.json")

    told = [command(*words) for _ in range(2)]

    assert [each.exit_code for each in told] == [0, 0], told[0].stderr
    stats = json.loads(command("cache", "stats", "--json").stdout)
    assert (stats["hits"], stats["misses"]) == (5, 5)
    assert stats["fetched_bytes"] == {
        "disk": here.size,
        "peer": peered.size,
        "mirror": mirrored.size,
        "signed": listed.size,
        "web": web.size,
    }
    assert (stats["files"], stats["bytes"]) == (5, sum(range(1096, 1101)))
    assert "5ecret" not in "".join(each.output for each in told)
