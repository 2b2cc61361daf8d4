"""`--schema FILE | --schema-from URL`: which node classes there are, and what they take."""

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import click

from comfyfarm.addresses import mask, read_bytes
from comfyfarm.cli.pack_options import check_web_address
from comfyfarm.errors import ProtocolError, UsageError
from comfyfarm.workflow.findings import Refused
from comfyfarm.workflow.schema import NodeSchema

Function = TypeVar("Function", bound=Callable[..., Any])

_FOLDER = re.compile(r"[\w][\w .+-]*")
_SCHEMA_LIMIT_BYTES = 256 * 1024 * 1024


def schema_options(function: Function) -> Function:
    """Both options, as parameters `schema` and `schema_from`."""
    function = click.option(
        "--schema-from",
        metavar="URL",
        help="Ask this running ComfyUI server for its node classes, and for what its loaders load from.",
    )(function)
    return click.option(
        "--schema", metavar="FILE", help="A saved /object_info (default: the shipped one of ComfyUI 0.27)."
    )(function)


def load_schema(schema: str | None, schema_from: str | None) -> NodeSchema:
    """The schema that the options name; a server's comes with its map of models folders.

    Raises:
        InputError: the file is none that a server answers.
        ProtocolError: the server answers something else.
        UsageError: both are given, or the server's address is none.
    """
    if schema is not None and schema_from is not None:
        raise UsageError("--schema and --schema-from exclude each other")
    if schema is not None:
        return NodeSchema.from_object_info(read_bytes(schema, limit_bytes=_SCHEMA_LIMIT_BYTES), name=schema)
    if schema_from is not None:
        check_web_address("--schema-from", schema_from)
        import asyncio  # 0.03 s, as below

        return asyncio.run(_ask(schema_from))
    return NodeSchema.shipped()


async def _ask(url: str) -> NodeSchema:
    from comfyfarm.comfy.client import ComfyClient  # 0.2 s that only this option pays
    from comfyfarm.workflow.probe import probe

    async with ComfyClient(url) as client:
        data = await client.object_info()
        listings = await _listings(client)
    try:
        classes = json.loads(data)
        found = NodeSchema.from_object_info(classes, name=mask(url), live=True)
    except (ValueError, RecursionError) as exc:
        raise ProtocolError(mask(url), "no JSON to /object_info") from exc
    except Refused as exc:  # no fault of the workflow
        raise ProtocolError(mask(url), exc.findings[0].message) from exc
    return found.with_folders(probe(classes, listings), embeddings=listings.get("embeddings"))


async def _listings(client: Any) -> Mapping[str, tuple[str, ...]]:
    """The files of each folder; a key that no folder can have is passed over."""
    return {key: await client.listing(key) for key in await client.listing() if _FOLDER.fullmatch(key)}
