"""`comfyfarm hydrate`: the locked model files into this host's cache, verified, and linked."""

import asyncio
from pathlib import Path

import click

from comfyfarm.addresses import read_bytes
from comfyfarm.cache.hydrate import hydrate, missing
from comfyfarm.cache.layout import refuse_foreign, write_extra_model_paths
from comfyfarm.cli.edge import ends_with_exit_code, say
from comfyfarm.cli.progress import hydration_bars
from comfyfarm.farm.supplies import keeper_from, supply_from
from comfyfarm.lock.lockfile import LOCK_LIMIT_BYTES, read_lock
from comfyfarm.plan.order_of_models import order_models
from comfyfarm.settings import read_settings
from comfyfarm.workflow.shown import counted


@click.command("hydrate")
@click.option("--lock", required=True, metavar="FILE", help="The lock, or its address.")
@click.option("--mirror", metavar="DIR|s3://…|https://…", help="Default: the lock's own sources.")
@click.option("--signed", metavar="FILE|URL", help="A list that `comfyfarm mirror sign` made.")
@click.option("--cache", type=click.Path(path_type=Path), help="Default: the user's cache directory.")
@click.option("--link-into", type=click.Path(path_type=Path), help="A models folder of ComfyUI.")
@click.option("--link", type=click.Choice(["symbolic", "hard"]), default="symbolic", show_default=True)
@click.option(
    "--connections", type=click.IntRange(1, 32), help="To one source of a file. Default: what the link needs."
)
@ends_with_exit_code
def command(
    lock: str,
    mirror: str | None,
    signed: str | None,
    cache: Path | None,
    link_into: Path | None,
    link: str,
    connections: int | None,
) -> None:
    """Bring the locked model files to this host, verified; link them where ComfyUI looks."""
    settings = read_settings()
    read = read_lock(read_bytes(lock, limit_bytes=LOCK_LIMIT_BYTES), name=lock)
    models = order_models(read.models)
    keeper = keeper_from(settings, cache.absolute() if cache else None)
    if link_into is not None:
        refuse_foreign(models, keeper.blobs, link_into)
    supply = supply_from(settings, mirror=mirror, signed=signed, connections=connections)
    with hydration_bars(missing(models, keeper.blobs)) as on_bytes:
        asyncio.run(hydrate(models, supply=supply, keeper=keeper, rereads=True, on_bytes=on_bytes))
    if link_into is not None:
        keeper.link(models, link_into.absolute(), hard=link == "hard")
    elif models:
        config = write_extra_model_paths(keeper.view(read.digest, models), keeper.blobs.disk)
        say(f"start ComfyUI with --extra-model-paths-config {config}")
    say(f"{counted(len(models), 'model')} {'is' if len(models) == 1 else 'are'} here, verified")
