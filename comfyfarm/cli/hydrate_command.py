"""`comfyfarm hydrate`: the locked model files into this host's cache, verified, and linked."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import click

from comfyfarm.addresses import read_bytes
from comfyfarm.cache.blobs import BlobStore
from comfyfarm.cache.hydrate import hydrate, missing
from comfyfarm.cache.layout import extra_model_paths_yaml, link_models, make_view
from comfyfarm.cli.edge import ends_with_exit_code, say
from comfyfarm.cli.progress import bytes_bar
from comfyfarm.farm.room import refuse_what_cannot_fit
from comfyfarm.farm.sources import LOCK_LIMIT_BYTES
from comfyfarm.lock.lockfile import LockedModel, read_lock
from comfyfarm.settings import read_settings
from comfyfarm.workflow.shown import counted


@click.command("hydrate")
@click.option("--lock", required=True, metavar="FILE", help="The lock, or its address.")
@click.option("--mirror", metavar="DIR|s3://…|https://…", help="Default: the lock's own sources.")
@click.option("--cache", type=click.Path(path_type=Path), help="Default: the user's cache directory.")
@click.option("--link-into", type=click.Path(path_type=Path), help="A models folder of ComfyUI.")
@click.option("--link", type=click.Choice(["symbolic", "hard"]), default="symbolic", show_default=True)
@ends_with_exit_code
def command(lock: str, mirror: str | None, cache: Path | None, link_into: Path | None, link: str) -> None:
    """Bring the locked model files to this host, verified; link them where ComfyUI looks."""
    read = read_lock(read_bytes(lock, limit_bytes=LOCK_LIMIT_BYTES), name=lock)
    models = read.models
    blobs = BlobStore((cache or read_settings().cache_dir).absolute())
    refuse_what_cannot_fit(models, blobs, link_into)
    with bytes_bar("models", sum(model.size for model in missing(models, blobs))) as advance:
        asyncio.run(hydrate(models, mirror=mirror, blobs=blobs, rereads=True, on_progress=advance))
    if link_into is not None:
        link_models(models, blobs, link_into.absolute(), hard=link == "hard")
    elif models:
        say(f"start ComfyUI with --extra-model-paths-config {_view(read.digest, models, blobs)}")
    say(f"{counted(len(models), 'model')} {'is' if len(models) == 1 else 'are'} here, verified")


def _view(digest: str, models: Sequence[LockedModel], blobs: BlobStore) -> Path:
    """The lock's own folder of links, and beside it the file that shows it to ComfyUI."""
    view = make_view(digest, models, blobs)
    config = view.with_suffix(".yaml")
    config.write_text(extra_model_paths_yaml(view), encoding="utf-8")
    return config
