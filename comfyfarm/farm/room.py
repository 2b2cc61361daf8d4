"""Whether a host can hold what a batch needs: asked before the first byte is fetched."""

import logging
from collections.abc import Iterator, Sequence
from pathlib import Path

from comfyfarm.addresses import mask
from comfyfarm.cache.blobs import BlobStore
from comfyfarm.cache.layout import refuse_foreign
from comfyfarm.errors import NoRoom
from comfyfarm.farm.servers import Server
from comfyfarm.lock.lockfile import Lock, LockedModel
from comfyfarm.plan.host_plan import HostFacts, bytes_text, plan_host
from comfyfarm.plan.vram import estimate_vram
from comfyfarm.workflow.findings import Severity

logger = logging.getLogger(__name__)


def refuse_what_cannot_fit(
    models: Sequence[LockedModel], blobs: BlobStore, models_dir: Path | None = None
) -> None:
    """Refuse models that the disk of the cache cannot hold. What dead processes left makes room first.

    `models_dir`: where they will be linked.

    Raises:
        NoRoom: before anything is fetched.
        ForeignFile: likewise, since files that are not ours lie where links should go.
    """
    if models_dir is not None:
        refuse_foreign(models, blobs, models_dir)
    blobs.sweep()
    facts = HostFacts(
        cached=frozenset(model.sha256 for model in models if blobs.has(model.sha256, size=model.size)),
        disk_free_bytes=blobs.free_bytes(),
    )
    plan = plan_host(Lock(models=tuple(models)), facts)
    for finding in plan.findings:
        if finding.code == "disk_tight":
            logger.warning("%s", finding)
    if not plan.fits:
        raise NoRoom("\n".join(str(found) for found in plan.findings if found.severity is Severity.ERROR))


def short_of_vram(models: Sequence[LockedModel], servers: Sequence[Server]) -> Iterator[str]:
    """Servers whose GPU may be too small: told only, since it is an estimate, and some stream weights."""
    needed = estimate_vram(models)
    for server in servers:
        if 0 < server.device.vram_total < needed.bytes:
            yield (
                f"{mask(server.url)}: an estimated {bytes_text(needed.bytes)} of VRAM are needed at once "
                f"({', '.join(needed.models)}), and it has {bytes_text(server.device.vram_total)}"
            )
