"""`comfyfarm prewarm`: the locked model files to this host ahead of time, each linked as soon as it is whole.

So it may run while ComfyUI starts: the folders that its loaders look into are there from the first moment.
"""

import asyncio
import json
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

from comfyfarm.addresses import mask, read_bytes
from comfyfarm.cache.fetch import Brought
from comfyfarm.cache.hydrate import hydrate, missing
from comfyfarm.cache.keeper.keeper import Keeper
from comfyfarm.cache.layout import write_extra_model_paths
from comfyfarm.cache.pinned import Pinned
from comfyfarm.cache.supply import Supply
from comfyfarm.cli.edge import ends_with_exit_code, say
from comfyfarm.cli.progress import hydration_bars
from comfyfarm.cli.workflow_files import read_file
from comfyfarm.clock import SystemClock, pause
from comfyfarm.errors import FarmError, TryLater
from comfyfarm.farm.room import refuse_what_cannot_fit
from comfyfarm.farm.supplies import keeper_from, supply_from
from comfyfarm.lock.lockfile import LOCK_LIMIT_BYTES, LockedModel, read_lock
from comfyfarm.plan.order_of_models import order_models
from comfyfarm.plan.order_of_use import ranks_of_files
from comfyfarm.settings import read_settings
from comfyfarm.workflow.schema import NodeSchema
from comfyfarm.workflow.shown import counted


@click.command("prewarm")
@click.argument("lock")
@click.option("--mirror", metavar="DIR|s3://…|https://…", help="Default: the lock's own sources.")
@click.option(
    "--signed", metavar="FILE|URL", help="A list of signed addresses, for a host without credentials."
)
@click.option("--cache", type=click.Path(path_type=Path), help="Default: the user's cache directory.")
@click.option("--link-into", type=click.Path(path_type=Path), help="A models folder of ComfyUI.")
@click.option("--link", type=click.Choice(["symbolic", "hard"]), default="symbolic", show_default=True)
@click.option(
    "--workflow",
    "workflows",
    multiple=True,
    metavar="FILE",
    help="What it needs first comes first; several in the order of their prompts.",
)
@click.option(
    "--spread",
    "spread_s",
    type=click.FloatRange(min=0),
    default=0.0,
    metavar="SECONDS",
    help="Wait a random time of up to so many first, if anything is to come: for many hosts at once.",
)
@click.option("--pin", "is_pinned", is_flag=True, help="Keep the files from ever being evicted.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object for programs, failed or not.")
@ends_with_exit_code
def command(
    lock: str,
    mirror: str | None,
    signed: str | None,
    cache: Path | None,
    link_into: Path | None,
    link: str,
    workflows: tuple[str, ...],
    spread_s: float,
    *,
    is_pinned: bool,
    as_json: bool,
) -> None:
    """Bring the model files of LOCK to this host before they are needed. Silent when all are here."""
    read = read_lock(read_bytes(lock, limit_bytes=LOCK_LIMIT_BYTES), name=lock)
    ranks = ranks_of_files({name: read_file(name) for name in workflows}, NodeSchema.shipped())
    settings = read_settings()
    keeper = keeper_from(settings, cache.absolute() if cache else None)
    work = Prewarming(
        models=order_models(read.models, ranks),
        keeper=keeper,
        models_dir=link_into.absolute() if link_into else None,
        view=keeper.blobs.root / "views" / read.digest,
        hard=link == "hard",
    )
    refuse_what_cannot_fit(work.models, keeper, link_into)
    if is_pinned:
        names = {model.sha256: model.title for model in read.models}
        keeper.pin(names, who=f"lock {read.digest}", why=mask(lock))
    work.run(supply_from(settings, mirror=mirror, signed=signed), spread_s=spread_s)
    if as_json:
        click.echo(json.dumps({"lock": mask(lock), **work.report()}, ensure_ascii=False))
    if work.fault is not None:
        raise work.fault


@dataclass
class Prewarming:
    """One lock's files on their way to this host, and what became of them."""

    models: Sequence[LockedModel]
    """In the order in which they are needed."""
    keeper: Keeper
    models_dir: Path | None
    """A models folder of ComfyUI; None when the lock's own view is used instead."""
    view: Path
    hard: bool = False
    fault: FarmError | None = None
    absent: frozenset[str] = frozenset()
    """SHA-256 of the files that were not here."""
    came: set[str] = field(default_factory=set)
    """Of those, what is here now."""
    seconds: float = 0.0

    @property
    def place(self) -> Path:
        """The folder in which ComfyUI finds the files."""
        return self.models_dir or self.view

    def run(self, supply: Supply, *, spread_s: float) -> None:
        """Bring what is missing; link each file as soon as it is here. A fault is kept for the end."""
        clock = SystemClock()
        began_at = clock.monotonic()
        absent = missing(self.models, self.keeper.blobs)
        self.absent = frozenset(model.sha256 for model in absent)
        self._open()
        self._link({model.sha256 for model in self.models} - self.absent)
        if absent:
            if self.models_dir is None:
                say(f"start ComfyUI with --extra-model-paths-config {self._config}")
            pause(random.uniform(0, spread_s))
            self._bring(absent, supply)
        self.seconds = clock.monotonic() - began_at

    def _bring(self, absent: Sequence[LockedModel], supply: Supply) -> None:
        try:
            with hydration_bars(absent) as on_bytes:
                asyncio.run(
                    hydrate(
                        self.models,
                        supply=supply,
                        keeper=self.keeper,
                        on_bytes=on_bytes,
                        on_file=self._on_file,
                    )
                )
        except FarmError as exc:
            self.fault = exc
        if self.fault is None:
            say(f"{counted(len(self.came), 'model')} came, verified")

    def _on_file(self, model: Pinned, _brought: Brought) -> None:
        if model.sha256 not in self.absent or model.sha256 in self.came:
            return
        try:
            self._link({model.sha256})
        except FarmError as exc:
            # The other files are to come all the same.
            self.fault = self.fault or exc
        self.came.add(model.sha256)

    def _open(self) -> None:
        """Have the folders into which links will come: a server looks only into those that are there."""
        disk = self.keeper.blobs.disk
        folders = sorted({model.folder for model in self.models})
        try:
            for folder in folders:
                disk.make_folder(self.place / folder)
            if self.models_dir is None:
                write_extra_model_paths(self.view, self.keeper.blobs.disk)
        except OSError as exc:
            raise TryLater(f"{self.place}: cannot be written: {exc.strerror or exc}") from exc

    def _link(self, contents: Iterable[str]) -> None:
        wanted = set(contents)
        here = [model for model in self.models if model.sha256 in wanted]
        if here:
            self.keeper.link(here, self.place, hard=self.hard)

    @property
    def _config(self) -> Path:
        return self.view.with_name(f"{self.view.name}.yaml")

    def report(self) -> dict[str, Any]:
        """For programs."""
        came = {model.sha256: model.size for model in self.models if model.sha256 in self.came}
        return {
            "cache": str(self.keeper.blobs.root),
            "models_dir": str(self.place),
            "config": None if self.models_dir is not None else str(self._config),
            "files": [
                {
                    "folder": model.folder,
                    "path": model.path,
                    "sha256": model.sha256,
                    "size": model.size,
                    "state": self._state(model),
                }
                for model in self.models
            ],
            "fetched_bytes": sum(came.values()),
            "seconds": round(self.seconds, 3),
            "error": None if self.fault is None else str(self.fault),
        }

    def _state(self, model: LockedModel) -> str:
        if not self.keeper.blobs.has(model.sha256, size=model.size):
            return "failed"
        return "fetched" if model.sha256 in self.came else "here"
