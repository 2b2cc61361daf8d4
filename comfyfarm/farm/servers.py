"""Looks at ComfyUI servers before work is given to them."""

import asyncio
import logging
import re
import socket
from collections.abc import Iterable, Sequence

from pydantic import BaseModel, ConfigDict

from comfyfarm.addresses import mask
from comfyfarm.clock import SystemClock
from comfyfarm.comfy.client import ComfyClient
from comfyfarm.comfy.identity import boot_identity
from comfyfarm.comfy.wire import Device, SystemStats
from comfyfarm.errors import (
    FarmError,
    InputError,
    NamesMissing,
    ProtocolError,
    ServerError,
    ServerUnreachable,
    UsageError,
)
from comfyfarm.ledger.records import ServerRecord
from comfyfarm.workflow.references import Kind, Reference
from comfyfarm.workflow.schema import NodeSchema

logger = logging.getLogger(__name__)

_LOOK_AGAIN_S = (0.1, 0.4, 0.5)


class Health(BaseModel):
    """What a server said when it was asked how it is."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    url: str
    stats: SystemStats | None = None
    fault: str = ""
    running: int = 0
    pending: int = 0

    @property
    def is_healthy(self) -> bool:
        """It answered, and its worker is at work when there is work."""
        return self.stats is not None and not self.fault


class Server(BaseModel):
    """A server that can be given work."""

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)

    url: str
    version: str
    device: Device
    identity: str
    node_schema: NodeSchema

    def record(self, host: str) -> ServerRecord:
        """The server as the ledger knows it."""
        return ServerRecord(url=self.url, host=host, device=self.device.name, model=model_slug(self.device))


def host_slug(name: str | None = None) -> str:
    """A host's name as it stands in tags and pools: lower case letters, digits and dashes."""
    return _slug(name or socket.gethostname()) or "host"


def model_slug(device: Device) -> str:
    """The GPU's model as in the tag `gpu:<model>`, such as `rtx4090`; `cpu` without a GPU."""
    if device.type == "cpu":
        return "cpu"
    # "cuda:0 NVIDIA GeForce RTX 4090 : cudaMallocAsync" is how ComfyUI writes it.
    name = re.sub(r"^\w+:\d+\s+", "", device.name).partition(" : ")[0]
    slug = _slug(re.sub(r"(?i)\b(nvidia|geforce|amd|radeon|tesla|quadro)\b", "", name))
    return re.sub(r"\b(rtx|gtx|rx)-(?=\d)", r"\1", slug) or "gpu"


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


async def health(url: str) -> Health:
    """Ask one server, with a limit of three seconds for each question.

    A queue that holds prompts while none runs is a dead worker: HTTP goes on answering then.
    """
    async with ComfyClient(url, timeout_s=3.0) as client:
        try:
            stats = await client.system_stats()
            running, pending = await _queued(client)
        except FarmError as exc:
            return Health(url=client.shown_url, fault=str(exc))
    fault = "prompts are pending and none runs: its worker is dead" if pending and not running else ""
    return Health(url=client.shown_url, stats=stats, fault=fault, running=running, pending=pending)


async def _queued(client: ComfyClient) -> tuple[int, int]:
    """How many run and wait. Seen once, none at work means little: one may just be going to start."""
    running, pending = 0, 0
    for pause_s in (0.0, *_LOOK_AGAIN_S):
        await SystemClock().sleep(pause_s)
        running, pending = (len(entries) for entries in (await client.queue()).values())
        if running or not pending:
            break
    return running, pending


async def examine(url: str) -> Server:
    """A server with its node schema.

    Raises:
        ServerError: it does not answer as ComfyUI does.
    """
    async with ComfyClient(url) as client:
        stats = await client.system_stats(timeout_s=10.0)
        info = await client.object_info()
    try:
        schema = NodeSchema.from_object_info(info, name=mask(url), live=True)
    except InputError as exc:
        raise ProtocolError(mask(url), f"GET /object_info: {exc}") from exc
    identity = await asyncio.to_thread(boot_identity, url)
    return Server(
        url=url.rstrip("/"),
        version=stats.version,
        device=stats.device,
        identity=identity,
        node_schema=schema,
    )


async def examine_all(urls: Sequence[str]) -> tuple[Server, ...]:
    """The servers that answer; those that do not are named in the log.

    Raises:
        UsageError: no server was named.
        ServerUnreachable: none answers.
    """
    if not urls:
        raise UsageError("no ComfyUI server was named: pass --server URL")
    found = await asyncio.gather(*(examine(url) for url in dict.fromkeys(urls)), return_exceptions=True)
    servers, faults = [], []
    for url, result in zip(dict.fromkeys(urls), found, strict=True):
        if isinstance(result, Server):
            servers.append(result)
        elif isinstance(result, ServerError):
            logger.warning("server left out: %s", result)
            faults.append(str(result))
        elif isinstance(result, BaseException):
            raise result
        else:
            raise TypeError(url)
    if not servers:
        raise ServerUnreachable(", ".join(mask(url) for url in urls), "; ".join(faults))
    return tuple(servers)


def eligible(servers: Sequence[Server], needed: Iterable[Reference]) -> tuple[Server, ...]:
    """The servers that offer every model that the batch needs, by their own `/object_info`.

    Raises:
        NamesMissing: none does; it lists what each one lacks.
    """
    wanted = tuple(needed)
    lacks = {server.url: _lacking(server, wanted) for server in servers}
    able = tuple(server for server in servers if not lacks[server.url])
    for url, names in lacks.items():
        if names and able:
            logger.warning("server left out: %s lacks %s", mask(url), ", ".join(names))
    if not able:
        missing = [f"{name} (not on {mask(url)})" for url, lacking in lacks.items() for name in lacking]
        raise NamesMissing(
            "no server offers every model that the batch needs; put the files into the servers' models "
            "folder, or let comfyfarm do it with --models-dir and --mirror:",
            missing,
        )
    return able


def _lacking(server: Server, wanted: Iterable[Reference]) -> tuple[str, ...]:
    missing = []
    for reference in wanted:
        if not reference.active or reference.kind is not Kind.FILE:
            continue
        if reference.input is None or reference.name is None:
            continue
        offered = server.node_schema.offered(reference.class_type, reference.input)
        if offered is not None and reference.name not in offered:
            missing.append(f"{reference.folder}/{reference.name}")
    return tuple(dict.fromkeys(missing))
