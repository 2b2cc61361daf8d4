"""`comfyfarm hydrate`: the locked model files into this host's cache, verified, and linked."""

import asyncio

import click

from comfyfarm.addresses import read_bytes
from comfyfarm.cache.hydrate import hydrate, missing
from comfyfarm.cache.layout import refuse_foreign, write_extra_model_paths
from comfyfarm.cli.edge import ends_with_exit_code, say
from comfyfarm.cli.hydration_options import Road, takes_road
from comfyfarm.cli.progress import hydration_bars
from comfyfarm.lock.lockfile import LOCK_LIMIT_BYTES, read_lock
from comfyfarm.plan.order_of_models import order_models
from comfyfarm.workflow.shown import counted


@click.command("hydrate")
@click.option("--lock", required=True, metavar="FILE", help="The lock, or its address.")
@click.option(
    "--connections", type=click.IntRange(1, 32), help="To one source of a file. Default: what the link needs."
)
@ends_with_exit_code
@takes_road
def command(lock: str, road: Road, connections: int | None) -> None:
    """Bring the locked model files to this host, verified; link them where ComfyUI looks."""
    read = read_lock(read_bytes(lock, limit_bytes=LOCK_LIMIT_BYTES), name=lock)
    models, keeper = order_models(read.models), road.keeper
    if road.models_dir is not None:
        refuse_foreign(models, keeper.blobs, road.models_dir)
    supply = road.supply(connections=connections)
    # Until the links are there, too: whoever makes room meanwhile would take files that only just came.
    with keeper.hold(models):
        with hydration_bars(missing(models, keeper.blobs)) as on_bytes:
            asyncio.run(hydrate(models, supply=supply, keeper=keeper, rereads=True, on_bytes=on_bytes))
        if road.models_dir is not None:
            keeper.link(models, road.models_dir, hard=road.is_hard)
        elif models:
            config = write_extra_model_paths(keeper.view(read.digest, models), keeper.blobs.disk)
            say(f"start ComfyUI with --extra-model-paths-config {config}")
    say(f"{counted(len(models), 'model')} {'is' if len(models) == 1 else 'are'} here, verified")
