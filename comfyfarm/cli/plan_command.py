"""`comfyfarm plan LOCK`: what a lock needs of a machine, and whether that fits, before it is fetched."""

import asyncio
import json
import sys
from pathlib import Path

import click

from comfyfarm.addresses import expanded, read_bytes
from comfyfarm.cache.blobs import BlobStore
from comfyfarm.cli.edge import ends_with_exit_code, say
from comfyfarm.errors import UsageError
from comfyfarm.farm.sources import LOCK_LIMIT_BYTES
from comfyfarm.lock.lockfile import Lock, read_lock
from comfyfarm.plan.host_plan import HostFacts, HostPlan, plan_host, shown
from comfyfarm.settings import read_settings
from comfyfarm.workflow.findings import Severity

_GIB = 1 << 30


@click.command("plan")
@click.argument("lock", default="comfyfarm.lock", metavar="[LOCK]")
@click.option("--cache", type=click.Path(path_type=Path), help="Default: the user's cache directory.")
@click.option("--models-dir", type=click.Path(path_type=Path), help="Where the servers look for models.")
@click.option("--custom-nodes", type=click.Path(path_type=Path), help="The node packs that are installed.")
@click.option("--server", metavar="URL", help="Ask this running ComfyUI server for its GPU and version.")
@click.option("--vram-gb", type=click.FloatRange(min=0), help="VRAM of the GPU, in GiB; 0 checks none.")
@click.option(
    "--disk-gb", type=click.FloatRange(min=0), help="Free disk, in GiB (default: of the cache's disk)."
)
@click.option("--quota-gb", type=click.FloatRange(min=0), help="Quota of the cache, in GiB.")
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
    """What a lock needs of this machine: bytes, disk, node packs, VRAM. Exit 1 when it cannot fit."""
    read = read_lock(read_bytes(lock, limit_bytes=LOCK_LIMIT_BYTES), name=lock)
    blobs = BlobStore((cache or read_settings().cache_dir).absolute())
    vram_bytes, version = asyncio.run(_ask(server)) if server else (None, None)
    facts = HostFacts(
        cached=frozenset(m.sha256 for m in read.models if blobs.has(m.sha256, size=m.size)),
        cache_bytes=_held_bytes(blobs) if quota_gb is not None else 0,
        quota_bytes=_bytes(quota_gb),
        disk_free_bytes=blobs.free_bytes() if disk_gb is None else _bytes(disk_gb),
        vram_bytes=vram_bytes if vram_gb is None else _bytes(vram_gb) or None,
        packs=_packs(custom_nodes) if custom_nodes is not None else None,
        comfyui=version,
        foreign=_foreign(read, blobs, models_dir) if models_dir is not None else (),
    )
    plan = plan_host(read, facts)
    if as_json:
        raw = {"lock": lock, "fits": plan.fits, **plan.model_dump(mode="json")}
        click.echo(json.dumps(raw, ensure_ascii=False))
    else:
        _print(plan)
    for finding in plan.findings:
        if finding.severity is not Severity.INFO:
            say(f"{finding.severity}: {finding.code}: {finding}")
    sys.exit(0 if plan.fits else 1)


async def _ask(url: str) -> tuple[int | None, str]:
    from comfyfarm.comfy.client import ComfyClient

    async with ComfyClient(url) as client:
        stats = await client.system_stats()
    return stats.device.vram_total or None, stats.version


def _bytes(gib: float | None) -> int | None:
    return None if gib is None else int(gib * _GIB)


def _held_bytes(blobs: BlobStore) -> int:
    return sum(file.stat().st_size for file in blobs.root.glob("sha256/??/*"))


def _packs(custom_nodes: Path) -> dict[str, str | None]:
    from comfyfarm.lock.checkouts import read_checkouts

    installed = read_checkouts(expanded(custom_nodes)).installed
    return {pack.url: pack.commit for pack in installed if pack.url is not None}


def _foreign(lock: Lock, blobs: BlobStore, models_dir: Path) -> tuple[str, ...]:
    """Files where models would be linked that are no links into the cache, and no names of its blobs."""
    root = expanded(models_dir).absolute()
    if not root.is_dir():
        raise UsageError(f"{root}: there is no such folder; name ComfyUI's models folder")
    names = ((f"{m.folder}/{m.path}", root / m.folder / m.path, blobs.path(m.sha256)) for m in lock.models)
    return tuple(name for name, file, blob in names if file.exists() and not _is_ours(file, blob, blobs))


def _is_ours(file: Path, blob: Path, blobs: BlobStore) -> bool:
    if file.is_symlink():
        return file.resolve().is_relative_to(blobs.root.resolve())
    return blob.exists() and file.samefile(blob)


def _print(plan: HostPlan) -> None:
    click.echo(f"{plan.host}: {'fits' if plan.fits else 'does not fit'}")
    click.echo(
        f"  fetch   {shown(plan.fetch_bytes)} in {len(plan.fetch)} files; {shown(plan.reuse_bytes)} are here"
    )
    if plan.evict_bytes:
        click.echo(f"  evict   {shown(plan.evict_bytes)} to keep within the quota")
    for pack in plan.install:
        click.echo(f"  install {pack.name} at {pack.commit[:12]} from {pack.url}")
    for pack in plan.change:
        click.echo(f"  change  {pack.name} from {(pack.installed or 'unknown')[:12]} to {pack.commit[:12]}")
    if plan.vram.models:
        click.echo(f"  VRAM    {shown(plan.vram.bytes)} at least, by estimate: {', '.join(plan.vram.models)}")
