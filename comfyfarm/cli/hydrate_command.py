"""`comfyfarm hydrate`: the locked model files into this host's cache, verified, and linked."""

from collections.abc import Sequence

import click

from comfyfarm.addresses import read_bytes
from comfyfarm.cache.hydrate import hydrate, missing
from comfyfarm.cache.layout import refuse_foreign, refuse_hard_links, write_extra_model_paths
from comfyfarm.cache.supply import Supply
from comfyfarm.cli.edge import ends_with_exit_code, run_in_order, say
from comfyfarm.cli.hydration_options import Road, takes_road
from comfyfarm.cli.progress import hydration_bars
from comfyfarm.errors import FarmError, TransferError
from comfyfarm.lock.lockfile import LOCK_LIMIT_BYTES, LockedModel, read_lock
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
    """Bring the locked model files to this host, verified; link them where ComfyUI looks.

    For now: files that are here are read again, and links come at the end. For ahead of time, in the order
    of a workflow or with a pin, see `prewarm`.
    """
    read = read_lock(read_bytes(lock, limit_bytes=LOCK_LIMIT_BYTES), name=lock)
    models, keeper = order_models(read.models), road.keeper
    refuse_foreign(models, keeper.blobs, road.models_dir or keeper.blobs.root / "views" / read.digest)
    if road.models_dir is not None and road.is_hard:
        refuse_hard_links(models, keeper.blobs, road.models_dir)
    supply = road.supply(connections=connections)
    # Until the links are there, too: whoever makes room meanwhile would take files that only just came.
    with keeper.hold(models):
        here, fault = _bring(models, supply, road)
        try:
            _link(here, road, read.digest)
        except FarmError as exc:
            raise (fault or exc) from None
    if fault is not None:
        raise fault
    say(f"{counted(len(models), 'model')} {'is' if len(models) == 1 else 'are'} here, verified")


def _bring(
    models: Sequence[LockedModel], supply: Supply, road: Road
) -> tuple[list[LockedModel], TransferError | None]:
    """Those that are here in the end, and why others are not."""
    whole: set[str] = set()
    fault = None
    with hydration_bars(missing(models, road.keeper.blobs)) as on_bytes:
        work = hydrate(
            models,
            supply=supply,
            keeper=road.keeper,
            rereads=True,
            on_bytes=on_bytes,
            on_file=lambda model, _brought: whole.add(model.sha256),
        )
        try:
            run_in_order(work)
        except TransferError as exc:
            fault = exc
    return [model for model in models if model.sha256 in whole], fault


def _link(models: Sequence[LockedModel], road: Road, lock_digest: str) -> None:
    keeper = road.keeper
    if not models:
        return
    if road.models_dir is not None:
        keeper.link(models, road.models_dir, hard=road.is_hard)
    else:
        config = write_extra_model_paths(keeper.view(lock_digest, models), keeper.blobs.disk)
        say(f"start ComfyUI with --extra-model-paths-config {config}")
