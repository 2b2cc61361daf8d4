"""`comfyfarm plan LOCK`: what a lock needs of a machine, and whether that fits, before it is fetched."""

import asyncio
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from comfyfarm.addresses import expanded, mask
from comfyfarm.cache.blobs import BlobStore
from comfyfarm.cache.keeper.admission import Bounds, evictable
from comfyfarm.cache.keeper.keeper import Keeper
from comfyfarm.cli.edge import ends_with_exit_code, say_findings
from comfyfarm.cli.lock_files import DEFAULT_LOCK, json_when_refused, open_lock
from comfyfarm.cli.pack_options import check_web_address
from comfyfarm.errors import UsageError
from comfyfarm.lock.hash_store import HashStore
from comfyfarm.lock.lockfile import Lock, LockedModel
from comfyfarm.plan.host_plan import HostFacts, HostPlan, bytes_text, plan_host
from comfyfarm.settings import read_settings
from comfyfarm.workflow.shown import counted

_GIB = 1 << 30


@click.command("plan")
@click.argument("lock", default=DEFAULT_LOCK, metavar="[LOCK]")
@click.option("--cache", type=click.Path(path_type=Path), help="Default: the user's cache directory.")
@click.option("--models-dir", type=click.Path(path_type=Path), help="Where the servers look for models.")
@click.option("--custom-nodes", type=click.Path(path_type=Path), help="The node packs that are installed.")
@click.option("--server", metavar="URL", help="Ask this running ComfyUI server for its GPU and version.")
@click.option("--vram-gb", type=click.FloatRange(min=0), help="VRAM of the GPU, in GiB; 0 checks none.")
@click.option(
    "--disk-gb", type=click.FloatRange(min=0), help="Free disk, in GiB (default: of the cache's disk)."
)
@click.option(
    "--quota-gb",
    type=click.FloatRange(min=0),
    help="Quota of the cache, in GiB (default: COMFYFARM_CACHE_QUOTA_GB).",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
@ends_with_exit_code
def command(
    lock: str,
    cache: Path | None,
    models_dir: Path | None,
    custom_nodes: Path | None,
    server: str | None,
    vram_gb: float | None,
    disk_gb: float | None,
    quota_gb: float | None,
    *,
    as_json: bool,
) -> None:
    """What a lock needs of this machine: bytes, disk, node packs, VRAM.

    Nothing is asked that is not given. Without --server and --vram-gb, VRAM is told and not checked;
    without --server the version of ComfyUI is not; without --custom-nodes every locked pack counts as to
    be installed; without --quota-gb and COMFYFARM_CACHE_QUOTA_GB the cache may grow as large as its disk;
    without --models-dir it is not looked whether files of others lie in the way of links. The disk is
    always looked at, and what is to stay free of it (COMFYFARM_CACHE_FREE_GB).

    Exit status: 1 when it cannot fit, or LOCK is none; 3 when an address or server does not answer.
    """
    if server is not None:
        check_web_address("--server", server)
    with json_when_refused(as_json, lock=mask(lock), fits=False):
        read = open_lock(lock)
    blobs = BlobStore((cache or read_settings().cache_dir).absolute())
    vram_bytes, version = asyncio.run(_ask(server)) if server else (None, None)
    facts = HostFacts(
        **_of_cache(read, blobs, quota_gb, disk_gb),
        vram_bytes=vram_bytes if vram_gb is None else _bytes(vram_gb) or None,
        packs=_packs(custom_nodes) if custom_nodes is not None else None,
        comfyui=version,
        **(_lying(read, blobs, models_dir) if models_dir is not None else {}),
    )
    plan = plan_host(read, facts)
    if as_json:
        raw = {"lock": mask(lock), "fits": plan.fits, **plan.model_dump(mode="json")}
        click.echo(json.dumps(raw, ensure_ascii=False))
    else:
        _print(plan)
    say_findings(plan.findings)
    sys.exit(0 if plan.fits else 1)


async def _ask(url: str) -> tuple[int | None, str]:
    from comfyfarm.comfy.client import ComfyClient

    async with ComfyClient(url) as client:
        stats = await client.system_stats()
    return stats.device.vram_total or None, stats.version


def _bytes(gib: float | None) -> int | None:
    return None if gib is None else int(gib * _GIB)


def _of_cache(lock: Lock, blobs: BlobStore, quota_gb: float | None, disk_gb: float | None) -> dict[str, Any]:
    """What is here, what of it has to stay for others, and how far the cache may grow."""
    settings = read_settings()
    quota = settings.cache_quota_bytes if quota_gb is None else _bytes(quota_gb)
    scene, _ = Keeper(blobs, Bounds(quota, settings.cache_free_bytes)).look()
    wanted = {model.sha256 for model in lock.models}
    leaving = set(evictable(scene, keep=dict.fromkeys(wanted)))
    sizes = {sha: blob.size for sha, blob in scene.blobs.items()}
    return {
        "cached": frozenset(m.sha256 for m in lock.models if sizes.get(m.sha256) == m.size),
        "cache_bytes": sum(sizes.values()),
        "stuck_bytes": sum(size for sha, size in sizes.items() if sha not in leaving and sha not in wanted),
        "quota_bytes": quota,
        "keep_free_bytes": settings.cache_free_bytes,
        "disk_free_bytes": scene.disk_free_bytes if disk_gb is None else _bytes(disk_gb),
    }


def _packs(custom_nodes: Path) -> dict[str, str | None]:
    from comfyfarm.lock.checkouts import read_checkouts

    installed = read_checkouts(expanded(custom_nodes)).installed
    return {pack.url: pack.commit for pack in installed if pack.url is not None}


def _lying(lock: Lock, blobs: BlobStore, models_dir: Path) -> dict[str, Any]:
    """What lies where models would be linked and is no link into the cache, nor a name of its blobs.

    Such a file is in the way (`foreign`), unless it has the locked content (`in_place`).
    """
    root = expanded(models_dir).absolute()
    if not root.is_dir():
        raise UsageError(f"{root}: there is no such folder; name ComfyUI's models folder")
    others = [(model, file) for model, file in _places(lock, root) if not _is_ours(model, file, blobs)]
    hashes = HashStore(read_settings().state_dir)
    is_in_place = {m.title: _has_content(file, m, hashes) for m, file in others}
    hashes.save()
    return {
        "foreign": tuple(name for name, is_so in is_in_place.items() if not is_so),
        "in_place": frozenset(name for name, is_so in is_in_place.items() if is_so),
    }


def _places(lock: Lock, root: Path) -> Iterator[tuple[LockedModel, Path]]:
    """Where something lies already, be it a link to nowhere, or a file instead of a folder."""
    for model in lock.models:
        file = root / model.folder / model.path
        above = [folder for folder in file.parents if folder.is_relative_to(root)]
        if os.path.lexists(file) or any(os.path.lexists(one) and not one.is_dir() for one in above):
            yield model, file


def _has_content(file: Path, model: LockedModel, hashes: HashStore) -> bool:
    try:
        return file.stat().st_size == model.size and hashes.of(file)[0] == model.sha256
    except OSError:
        return False


def _is_ours(model: LockedModel, file: Path, blobs: BlobStore) -> bool:
    if file.is_symlink():
        return file.resolve().is_relative_to(blobs.root.resolve())
    blob = blobs.path(model.sha256)
    return blob.exists() and file.exists() and file.samefile(blob)


def _print(plan: HostPlan) -> None:
    click.echo(f"{plan.host}: {'fits' if plan.fits else 'does not fit'}")
    click.echo(
        f"  fetch   {bytes_text(plan.fetch_bytes)} in {counted(len(plan.fetch), 'file')}; "
        f"{bytes_text(plan.reuse_bytes)} here already"
    )
    in_place = sum(finding.code == "in_place" for finding in plan.findings)
    if in_place:
        click.echo(f"  keep    {counted(in_place, 'file')} with the locked content in --models-dir")
    if plan.evict_bytes:
        click.echo(f"  evict   {bytes_text(plan.evict_bytes)} to make room")
    for pack in plan.install:
        click.echo(f"  install {pack.name} at {pack.commit[:12]} from {pack.url}")
    for pack in plan.change:
        click.echo(f"  change  {pack.name} from {(pack.installed or 'unknown')[:12]} to {pack.commit[:12]}")
    if plan.vram.models:
        click.echo(
            f"  VRAM    {bytes_text(plan.vram.bytes)} at least, by estimate: {', '.join(plan.vram.models)}"
        )
