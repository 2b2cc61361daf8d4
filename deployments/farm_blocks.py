"""The blocks that a deployed run names: host, ledger, output store, mirror."""

import os
from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import SecretStr

from blocks.comfy_host import ComfyHost
from blocks.farm_ledger import FarmLedger
from blocks.named_block import NamedBlock
from blocks.object_access import Mirror, OutputStore
from comfyfarm.cache.places.place import read_s3_access
from comfyfarm.errors import UsageError
from deployments.wanted import Wanted

Kind = TypeVar("Kind", bound=NamedBlock)

TYPES: tuple[type[NamedBlock], ...] = (ComfyHost, FarmLedger, OutputStore, Mirror)
_CREDENTIALS = ("endpoint", "access_key", "secret_key", "session_token")


async def set_up_blocks(wanted: Wanted, *, environ: Mapping[str, str] | None = None) -> tuple[str, ...]:
    """Register the block types, and have the blocks say what is wanted; the names of those blocks.

    What is not given stays as it is: a block may have been completed in the dashboard. But a place that
    has other credentials, or needs none, keeps nothing of those it had.
    """
    for kind in TYPES:
        await kind.register_type_and_schema()
    env = os.environ if environ is None else environ
    host: dict[str, Any] = {
        "servers": list(wanted.servers),
        "cache_dir": wanted.cache_dir,
        "models_dir": wanted.models_dir,
        "inputs_dir": wanted.inputs_dir,
    }
    given = {key: value for key, value in host.items() if value is not None}
    names = [
        await _have(ComfyHost, wanted.host, given),
        await _have(FarmLedger, "default", {"address": wanted.ledger}),
        await _have(OutputStore, "default", place_fields(wanted.out, env)),
    ]
    if wanted.mirror is not None:
        names.append(await _have(Mirror, "default", place_fields(wanted.mirror, env)))
    return tuple(names)


def place_fields(address: str, environ: Mapping[str, str]) -> dict[str, Any]:
    """The fields of an `ObjectAccess` block; for a bucket with the credentials of `AWS_*`.

    None empties a field. A bucket for which the environment has no credentials keeps the block's.
    """
    if not address.startswith("s3://"):
        return {"address": address, **dict.fromkeys(_CREDENTIALS)}
    access = read_s3_access(environ)
    if access is None:
        return {"address": address}
    return {
        "address": address,
        "endpoint": access.endpoint,
        "region": access.region,
        "access_key": access.access_key,
        "secret_key": access.secret,
        "session_token": access.session_token,
    }


async def _have(kind: type[Kind], name: str, fields: Mapping[str, Any]) -> str:
    """Save the block when it is new or says something else; its id stays."""
    try:
        known = await kind.named(name)
    except UsageError:
        await kind(**fields).save(name)
    else:
        if _differs(known, fields):
            await known.model_copy(update=dict(fields)).save(name, overwrite=True)
    return f"{kind.get_block_type_slug()}/{name}"


def _differs(known: NamedBlock, fields: Mapping[str, Any]) -> bool:
    return any(_plain(getattr(known, key)) != _plain(value) for key, value in fields.items())


def _plain(value: Any) -> Any:
    return value.get_secret_value() if isinstance(value, SecretStr) else value
