"""`comfyfarm prewarm`: the locked model files to this host ahead of time, each linked as soon as it is whole.

So it may run while ComfyUI starts: the folders that its loaders look into are there from the first moment.
"""

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
from comfyfarm.cache.layout import refuse_hard_links, write_extra_model_paths
from comfyfarm.cache.pinned import Pinned
from comfyfarm.cache.supply import Suppliers, Supply
from comfyfarm.cli.edge import ends_with_exit_code, run_in_order, say, told
from comfyfarm.cli.hydration_options import Road, takes_road
from comfyfarm.cli.progress import hydration_bars
from comfyfarm.clock import SystemClock, pause
from comfyfarm.errors import FarmError, TryLater
from comfyfarm.farm.room import refuse_what_cannot_fit
from comfyfarm.lock.lockfile import LOCK_LIMIT_BYTES, LockedModel, read_lock
from comfyfarm.plan.order_of_models import Ranks, order_models
from comfyfarm.workflow.shown import counted


@click.command("prewarm")
@click.argument("lock")
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
@takes_road
def command(
    lock: str, road: Road, workflows: tuple[str, ...], spread_s: float, *, is_pinned: bool, as_json: bool
) -> None:
    """Bring the model files of LOCK to this host before they are needed. Silent when all are here.

    Each is linked as soon as it is whole; those that are here are taken by their size. `hydrate` reads them
    again, and links at its end.
    """
    read = read_lock(read_bytes(lock, limit_bytes=LOCK_LIMIT_BYTES), name=lock)
    work = Prewarming(
        models=order_models(read.models, _ranks(workflows) if workflows else {}),
        keeper=road.keeper,
        models_dir=road.models_dir,
        lock_digest=read.digest,
        hard=road.is_hard,
    )
    work.run(road.supply(), spread_s=spread_s, pinned_for=mask(lock) if is_pinned else None)
    if as_json:
        click.echo(json.dumps({"lock": mask(lock), **work.report()}, ensure_ascii=False))
    if work.fault is not None:
        raise work.fault


def _ranks(workflows: Sequence[str]) -> Ranks:
    from comfyfarm.cli.workflow_files import read_file
    from comfyfarm.plan.order_of_use import ranks_of_files
    from comfyfarm.workflow.schema import NodeSchema

    return ranks_of_files({name: read_file(name) for name in workflows}, NodeSchema.shipped())


@dataclass
class Prewarming:
    """One lock's files on their way to this host, and what became of them."""

    models: Sequence[LockedModel]
    """In the order in which they are needed."""
    keeper: Keeper
    models_dir: Path | None
    """A models folder of ComfyUI; None when the lock's own view is used instead."""
    lock_digest: str
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
        return self.models_dir or self._view

    @property
    def _view(self) -> Path:
        return self.keeper.blobs.root / "views" / self.lock_digest

    def run(self, supply: Supply, *, spread_s: float, pinned_for: str | None = None) -> None:
        """Bring what is missing; link each file as soon as it is here. A fault is kept for the end.

        Args:
            supply: where to look.
            spread_s: wait a random time of up to so many seconds, if anything is to come.
            pinned_for: pin the files, for whoever wonders later.
        """
        clock = SystemClock()
        began_at = clock.monotonic()
        try:
            refuse_what_cannot_fit(self.models, self.keeper, self.models_dir)
            if self.hard and self.models_dir is not None:
                refuse_hard_links(self.models, self.keeper.blobs, self.models_dir)
            # What is wrong with an address is said before anything is promised.
            suppliers = Suppliers(supply, cache_root=self.keeper.blobs.root)
            if pinned_for is not None:
                names = {model.sha256: model.title for model in self.models}
                self.keeper.pin(names, who=f"lock {self.lock_digest}", why=pinned_for)
            # From here to the last link, lest somebody makes room with files that only just came.
            with self.keeper.hold(self.models):
                self._bring(suppliers, spread_s)
        except FarmError as exc:
            self.fault = exc
        except OSError as exc:
            self.fault = told(exc)
        self.seconds = clock.monotonic() - began_at

    def _bring(self, suppliers: Suppliers, spread_s: float) -> None:
        absent = missing(self.models, self.keeper.blobs)
        self.absent = frozenset(model.sha256 for model in absent)
        self._open()
        self._link({model.sha256 for model in self.models} - self.absent)
        if absent:
            if self.models_dir is None:
                say(f"start ComfyUI with --extra-model-paths-config {self._config}")
            pause(random.uniform(0, spread_s))
        # Also when all are here: that they are is to be noted.
        with hydration_bars(absent) as on_bytes:
            run_in_order(
                hydrate(
                    self.models,
                    supply=suppliers,
                    keeper=self.keeper,
                    on_bytes=on_bytes,
                    on_file=self._on_file,
                )
            )
        if absent and self.fault is None:
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
                write_extra_model_paths(self._view, disk)
        except OSError as exc:
            raise TryLater(f"{self.place}: cannot be written: {exc.strerror or exc}") from exc

    def _link(self, contents: Iterable[str]) -> None:
        wanted = set(contents)
        here = [model for model in self.models if model.sha256 in wanted]
        if here:
            self.keeper.link(here, self.place, hard=self.hard)

    @property
    def _config(self) -> Path:
        return self._view.with_name(f"{self.lock_digest}.yaml")

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
