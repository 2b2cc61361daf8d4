"""Looks at ComfyUI servers before work is given to them."""

import asyncio
import ipaddress
import logging
import re
import socket
from collections.abc import Iterable, Mapping, Sequence
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict

from comfyfarm.addresses import mask
from comfyfarm.clock import SystemClock
from comfyfarm.comfy.client import ComfyClient
from comfyfarm.comfy.http import SERVER_AUTH
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
    WorkflowError,
)
from comfyfarm.ids import Sha256
from comfyfarm.ledger.records import ServerRecord
from comfyfarm.workflow.references.find import Kind, Reference
from comfyfarm.workflow.schema import NodeSchema

logger = logging.getLogger(__name__)

_LOOK_AGAIN_S = (0.1, 0.4, 0.5)
_EXAMINE_AGAIN_S = 0.5
_TROUBLED_S = 3.0


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
    host: str
    """The host that it belongs to, as in the tag `gpu:<host>`."""
    version: str
    device: Device
    identity: str
    node_schema: NodeSchema

    def record(self) -> ServerRecord:
        """The server as the ledger knows it."""
        return ServerRecord(
            url=self.url, host=self.host, device=self.device.name, model=model_slug(self.device)
        )


def host_of(url: str) -> str:
    """The slug of the host that an address names; loopback is this machine by its own name.

    Raises:
        UsageError: it is no address of a server.
    """
    try:
        parts = urlsplit(url)
        if parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0:
            return host_slug(None if _is_here(parts.hostname) else parts.hostname)
    except ValueError:  # a port that is none, a bracket that is not closed
        pass
    raise UsageError(f"{mask(url)}: no address of a server; write one such as http://127.0.0.1:8188")


def refuse_passwords(urls: Iterable[str], *, where: str) -> None:
    """Addresses become parameters and blocks of Prefect's, which everybody sees.

    `where`: the variable is to be set, or what else can be done; the end of the message.

    Raises:
        UsageError: one has a user or a password.
    """
    for url in urls:
        if "@" in url:
            raise UsageError(
                f"{mask(url)}: Prefect would keep and show user and password; leave them out of the address, "
                f"and set {SERVER_AUTH}=user:password {where}"
            )


def _is_here(name: str) -> bool:
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        return name == "localhost"
    return address.is_loopback or address.is_unspecified


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


async def examine(url: str, host: str | None = None) -> Server:
    """A server with its node schema. Without `host` it belongs to the one that its address names.

    Raises:
        ServerError: it does not answer as ComfyUI does.
        UsageError: it is no address of a server.
    """
    belongs_to = host or host_of(url)
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
        host=belongs_to,
        version=stats.version,
        device=stats.device,
        identity=identity,
        node_schema=schema,
    )


async def examine_all(urls: Sequence[str], host: str | None = None) -> tuple[Server, ...]:
    """The servers that answer; those that do not are named in the log.

    Args:
        urls: their base addresses.
        host: the one that all of them belong to; without it, each to the one that its address names.

    Raises:
        UsageError: no server was named, or something else than ComfyUI answers there.
        ServerError: none answers now.
    """
    if not urls:
        raise UsageError("no ComfyUI server was named: pass --server URL")
    found = await asyncio.gather(*(_examined(url, host) for url in dict.fromkeys(urls)))
    servers = tuple(one for one in found if isinstance(one, Server))
    faults = [one for one in found if not isinstance(one, Server)]
    if not servers:
        raise no_server(faults)
    for fault in faults:
        logger.warning("server left out: %s", fault)
    return servers


async def _examined(url: str, host: str | None) -> Server | ServerError:
    """A server that is left out is so for the whole batch: one in trouble is asked again for a moment."""
    end = SystemClock().monotonic() + _TROUBLED_S
    while True:
        try:
            return await examine(url, host)
        except ServerError as exc:
            is_gone = isinstance(exc, ServerUnreachable) and exc.is_refused
            if is_gone or not _may_pass(exc) or SystemClock().monotonic() > end:
                return exc
        await SystemClock().sleep(_EXAMINE_AGAIN_S)


def no_server(faults: Sequence[ServerError]) -> FarmError:
    """The error of whoever is left without a server: try later, or name other addresses."""
    may_pass = [fault for fault in faults if _may_pass(fault)]
    text = "; ".join(map(str, faults))
    if not may_pass:
        return UsageError(f"{text}; name the address of a ComfyUI server")
    return may_pass[0] if len(faults) == 1 else ServerError(f"no server can be used: {text}")


def _may_pass(fault: ServerError) -> bool:
    """Whether ComfyUI may still answer there: nothing did, or what stands before it says that it is away."""
    if not isinstance(fault, ProtocolError):
        return True
    return fault.status is not None and (fault.status == 429 or fault.status >= 500)


def suited(servers: Sequence[Server], unfit: Mapping[Sha256, str]) -> tuple[Server, ...]:
    """The servers on which the workflows can run.

    Args:
        servers: those that answer.
        unfit: what is wrong, by the digest of the node schema (`Prepared.unfit`).

    Raises:
        WorkflowError: none is left; with what is wrong.
    """
    for server in servers:
        if server.node_schema.offers_sha256 in unfit:
            reason = unfit[server.node_schema.offers_sha256]
            logger.warning("server left out: the workflow cannot run on %s: %s", mask(server.url), reason)
    able = tuple(server for server in servers if server.node_schema.offers_sha256 not in unfit)
    if not able:
        raise WorkflowError("\n".join(dict.fromkeys(unfit.values())))
    return able


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
