"""How many model files come at a time: to one host, and from one mirror to all hosts together."""

import re
from hashlib import sha256

from prefect import get_client
from prefect.exceptions import ObjectNotFound

from comfyfarm.addresses import is_address, mask
from flows.gpu_limits import HYDRATE_SLOTS

MIRROR_SLOTS = 16
"""Model files that one mirror gives at a time, to all hosts together, until somebody sets another limit."""


def mirror_tag(mirror: str | None) -> str | None:
    """The tag that limits a mirror; None for a folder, which is the host's own affair.

    One for one mirror, as whomever it is asked: nothing that is secret in an address goes into it.
    """
    if mirror is None or not is_address(mirror):
        return None
    shown = mask(mirror).partition("?")[0].replace("***@", "").rstrip("/").lower()
    slug = re.sub(r"[^a-z0-9]+", "-", shown).strip("-")[:40]
    return f"mirror:{slug}-{sha256(shown.encode()).hexdigest()[:8]}"


async def set_hydration_limits(host: str, mirror: str | None) -> None:
    """Have a limit for each tag of a hydration, since a tag without one is unlimited; safe to repeat.

    One that is there stays: it is the user's, in the dashboard.
    """
    wanted = {f"hydrate:{host}": HYDRATE_SLOTS}
    if tag := mirror_tag(mirror):
        wanted[tag] = MIRROR_SLOTS
    async with get_client() as client:
        for tag, limit in wanted.items():
            try:
                await client.read_concurrency_limit_by_tag(tag)
            except ObjectNotFound:
                await client.create_concurrency_limit(tag=tag, concurrency_limit=limit)
