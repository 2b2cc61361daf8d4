"""Options that say where node packs are known from, and what was chosen."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

import click

from comfyfarm.addresses import expanded, is_address, mask, read_bytes
from comfyfarm.errors import CatalogueError, InputError, UsageError

if TYPE_CHECKING:  # read when an option asks for it
    from comfyfarm.lock.project_file import ProjectFile
    from comfyfarm.workflow.packs.index import PackIndex

logger = logging.getLogger(__name__)

Function = TypeVar("Function", bound=Callable[..., Any])

_LIMIT_BYTES = 256 * 1024 * 1024
_MANAGER_TIMEOUT_S = 60.0  # it looks into every checkout
_MANAGER_ROUTES = (
    ("/v2/customnode/installed", "/customnode/installed"),
    ("/v2/snapshot/get_current", "/snapshot/get_current"),
)
"""Folders with their versions, then addresses with commits; each under its new and its old name."""


@dataclass(frozen=True, slots=True)
class PackSources:
    """Where node packs are known from, as the options name it."""

    node_map: tuple[str, ...] = ()
    """Class maps."""
    custom_nodes: str | None = None
    """A folder of checkouts."""
    host_packs: str | None = None
    """A host's own list."""
    schema_from: str | None = None
    """The address of a server, which is asked for its packs."""


def pack_options(function: Function) -> Function:
    """Parameters `node_map` (a tuple), `custom_nodes`, `host_packs`, `config`."""
    options = (
        click.option(
            "--node-map",
            multiple=True,
            metavar="FILE|WHEEL",
            help="Which pack has which node class: ComfyUI-Manager's class map, or its wheel. Repeatable.",
        ),
        click.option(
            "--custom-nodes", metavar="DIR", help="Checkouts of node packs, such as ComfyUI/custom_nodes."
        ),
        click.option(
            "--host-packs", metavar="FILE", help="A host's packs: a snapshot, or its /customnode/installed."
        ),
        click.option(
            "--config", metavar="FILE", help="Choices and policy (default: the nearest comfyfarm.toml)."
        ),
    )
    for option in reversed(options):
        function = option(function)
    return function


def online_pack_options(function: Function) -> Function:
    """Parameters `registry` and `ask_remotes`, for `comfyfarm.lock.online_packs.resolve_online`."""
    function = click.option(
        "--ask-remotes", is_flag=True, help="Ask repositories of node packs which commit a release is."
    )(function)
    return click.option(
        "--registry", metavar="URL", help="Ask this registry of node packs which repository an id means."
    )(function)


def check_web_address(option: str, address: str | None) -> None:
    """Refuse a value that can be no address of a web server; None is no value.

    Raises:
        UsageError: it is none.
    """
    if address is None:
        return
    try:
        parts = urlsplit(address)
        is_one = parts.scheme.lower() in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is no number, a bracket too many
        is_one = False
    if not is_one:
        raise UsageError(f"{option} {mask(address)[:80]!r} is no address; write http://… or https://…")


def known_index(sources: PackSources) -> "PackIndex":
    """Read what the options name; ask the server which packs it has.

    Raises:
        InputError: a file cannot be read.
        UsageError: the folder cannot be read.
        ServerUnreachable: the server does not answer.
    """
    from comfyfarm.workflow.packs.index import PackIndex, merged

    parts: list[PackIndex] = []
    if sources.custom_nodes is not None:
        from comfyfarm.lock.checkouts import read_checkouts

        parts.append(read_checkouts(expanded(Path(sources.custom_nodes))))
    if sources.host_packs is not None:
        from comfyfarm.lock.host_packs import read_host_packs

        data = read_bytes(sources.host_packs, limit_bytes=_LIMIT_BYTES)
        parts.append(read_host_packs(data, name=sources.host_packs))
    if sources.schema_from is not None:
        import asyncio  # 0.03 s that only this option pays

        parts.extend(asyncio.run(_asked(sources.schema_from)))
    if sources.node_map:
        from comfyfarm.lock.node_map import read_node_map

        parts.extend(
            read_node_map(read_bytes(name, limit_bytes=_LIMIT_BYTES), name=name) for name in sources.node_map
        )
    return merged(parts) if parts else PackIndex()


async def _asked(url: str) -> "list[PackIndex]":
    """What ComfyUI-Manager says on that server, where it has one."""
    from comfyfarm.comfy.client import ComfyClient
    from comfyfarm.lock.host_packs import read_host_packs

    found: list[PackIndex] = []
    async with ComfyClient(url) as client:
        for routes in _MANAGER_ROUTES:
            for route in routes:
                data = await client.other_route(route, timeout_s=_MANAGER_TIMEOUT_S)
                if data is not None:
                    try:
                        found.append(read_host_packs(data, name=f"{client.shown_url}{route}"))
                        break
                    except CatalogueError as exc:
                        logger.warning("%s", exc)
    return found


def load_project(config: str | None, workflow: str | None = None) -> "ProjectFile":
    """The project file that `--config` names; else the nearest one above the workflow; else an empty one.

    A workflow at an address has none above it: the current folder's counts then.

    Raises:
        UsageError: it cannot be read.
    """
    from comfyfarm.lock.project_file import ProjectFile

    name = project_name(config, workflow)
    return ProjectFile() if name is None else read_project(name)


def project_name(config: str | None, workflow: str | None = None) -> str | None:
    """The path or address of the project file that counts; None where there is none."""
    from comfyfarm.lock.project_file import find_project_file

    if config is not None:
        return config
    is_path = workflow is not None and not is_address(workflow)
    found = find_project_file(Path(workflow if is_path and workflow is not None else "."))
    return None if found is None else str(found)


def read_project(name: str) -> "ProjectFile":
    """The project file of that name.

    Raises:
        UsageError: it cannot be read.
        TryLater: the address did not answer.
    """
    from comfyfarm.lock.project_file import PROJECT_LIMIT_BYTES, read_project_file

    try:
        data = read_bytes(name, limit_bytes=PROJECT_LIMIT_BYTES)
    except InputError as exc:  # it is the set-up that is wrong, not the workflow's data
        raise UsageError(str(exc)) from exc
    return read_project_file(data, name=name)
