"""Whether a host can hold what a batch needs: asked before the first byte is fetched."""

import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from comfyfarm.addresses import mask
from comfyfarm.cache.keeper.keeper import Keeper
from comfyfarm.cache.layout import refuse_foreign
from comfyfarm.lock.lockfile import Lock, LockedModel
from comfyfarm.plan.host_plan import HostFacts, bytes_text, plan_host
from comfyfarm.plan.vram import estimate_vram

if TYPE_CHECKING:  # whoever only fetches files speaks to no server
    from comfyfarm.farm.servers import Server

logger = logging.getLogger(__name__)


def refuse_what_cannot_fit(
    models: Sequence[LockedModel],
    keeper: Keeper,
    models_dir: Path | None = None,
) -> None:
    """Refuse models that the cache cannot hold, whatever may leave it. Nothing leaves it yet.

    Args:
        models: what has to be here.
        keeper: of the cache.
        models_dir: where they will be linked.

    Raises:
        NoRoom: before anything is fetched: what is missing, who holds what, and the remedy.
        ForeignFile: likewise, since files that are not ours lie where links should go.
    """
    blobs = keeper.blobs
    if models_dir is not None:
        refuse_foreign(models, blobs, models_dir)
    blobs.sweep()
    admission = keeper.check(models)
    facts = HostFacts(
        cached=frozenset(model.sha256 for model in models if blobs.has(model.sha256, size=model.size)),
        disk_free_bytes=blobs.free_bytes() + admission.freed_bytes,
    )
    for finding in plan_host(Lock(models=tuple(models)), facts).findings:
        if finding.code == "disk_tight":
            logger.warning("%s", finding)


def short_of_vram(models: Sequence[LockedModel], servers: "Sequence[Server]") -> Iterator[str]:
    """Servers whose GPU may be too small: told only, since it is an estimate, and some stream weights."""
    needed = estimate_vram(models)
    for server in servers:
        if 0 < server.device.vram_total < needed.bytes:
            yield (
                f"{mask(server.url)}: an estimated {bytes_text(needed.bytes)} of VRAM are needed at once "
                f"({', '.join(needed.models)}), and it has {bytes_text(server.device.vram_total)}"
            )
