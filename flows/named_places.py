"""What a flow's parameters name: blocks, addresses, or this machine's own."""

import json
from pathlib import Path
from typing import Any

from blocks.comfy_host import ComfyHost
from blocks.object_access import Mirror, ObjectAccess, OutputStore
from comfyfarm.cache.places.objects import S3Access
from comfyfarm.errors import InputError
from comfyfarm.farm.servers import host_slug
from comfyfarm.settings import read_settings


def address_or_json(given: str | dict[str, Any]) -> str | dict[str, Any]:
    """An address as it is; JSON that was pasted as text becomes the object.

    Raises:
        InputError: text that begins as JSON does, and is none.
    """
    if isinstance(given, dict) or not given.lstrip().startswith("{"):
        return given.strip() if isinstance(given, str) else given
    try:
        parsed: dict[str, Any] = json.loads(given)
    except json.JSONDecodeError as exc:
        raise InputError(f"the pasted text is no JSON: {exc}; paste all of it, or give an address") from exc
    return parsed


async def output_place(out: str) -> tuple[str, S3Access | None]:
    """Where outputs go, and as whom: `output-store/NAME` is a block, anything else the address itself."""
    return await _place(out, "output-store/", OutputStore)


async def mirror_place(mirror: str | None) -> tuple[str | None, S3Access | None]:
    """Where model files come from, and as whom: `mirror/NAME` is a block."""
    return (None, None) if mirror is None else await _place(mirror, "mirror/", Mirror)


async def _place(name: str, prefix: str, kind: type[ObjectAccess]) -> tuple[str, S3Access | None]:
    if not name.startswith(prefix):
        return name, None
    block = await kind.named(name.removeprefix(prefix))
    return block.address, block.access()


async def host_fields(host: str | None, given: dict[str, Any]) -> dict[str, Any]:
    """Servers and folders of the host: as given, else as its `comfy-host` block says.

    Raises:
        UsageError: no servers are given, and there is no such block.
    """
    name = host or host_slug()
    block = None if given["servers"] else await ComfyHost.named(name)
    known = {} if block is None else block.model_dump(include=set(given))
    fields = {key: given[key] or known.get(key) for key in given}
    fields["cache_dir"] = Path(fields["cache_dir"] or read_settings().cache_dir)
    return {**fields, "host": name}
