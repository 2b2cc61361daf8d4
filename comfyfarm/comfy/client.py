"""HTTP to one ComfyUI server. Says what was answered; judges nothing."""

import hashlib
import json
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote

import httpx
from pydantic import ValidationError

from comfyfarm.addresses import mask
from comfyfarm.comfy.http import Http
from comfyfarm.comfy.wire import (
    Device,
    HistoryEntry,
    OutputEntry,
    Phase,
    PromptState,
    SubmitAnswer,
    SystemStats,
    finite,
    read_history,
)
from comfyfarm.errors import ProtocolError, ServerUnreachable
from comfyfarm.ids import JobId

logger = logging.getLogger(__name__)

_BODY_LIMIT = 64 * 1024  # bytes of a refusal that are kept as evidence
_SHOWN_LIMIT = 100  # characters of an answer that is not understood
_LOG_TAIL = 8 * 1024  # characters
_LOG_TIMEOUT_S = 2.0
_OBJECT_INFO_TIMEOUT_S = 180.0  # slow disks: listing models took over 90 s for some users


class ComfyClient:
    """Speaks to one server; `url` is its base address, such as `http://127.0.0.1:8188`."""

    def __init__(self, url: str, *, timeout_s: float = 10.0) -> None:
        """`timeout_s` bounds each connect, each read and each write."""
        self.url = url.rstrip("/")
        self.shown_url = mask(self.url)
        self._http = Http(self.url, timeout_s=timeout_s)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections."""
        await self._http.close()

    async def submit(
        self, graph: Mapping[str, Any], *, prompt_id: JobId, client_id: str, timeout_s: float = 60.0
    ) -> SubmitAnswer:
        """Queue a graph under an id of our choosing; `number` is never sent.

        Not safe to repeat blindly: the server compares no ids, so a second call is a second
        render. After `ServerUnreachable`, ask `prompt_state` first: a POST whose answer was
        lost may still run.

        Raises:
            ServerUnreachable: no complete answer in time.

        Source: `post_prompt` in ComfyUI's server.py at 0.27.0.
        """
        body = {"prompt": graph, "prompt_id": prompt_id, "client_id": client_id}
        response = await self._send("POST", "/prompt", json=body, timeout_s=timeout_s)
        raw = _lenient(response.content)
        answer = raw if isinstance(raw, dict) else {}
        number = finite(answer.get("number"))
        error, node_errors = answer.get("error"), answer.get("node_errors")
        return SubmitAnswer(
            status=response.status_code,
            prompt_id=answer.get("prompt_id") if isinstance(answer.get("prompt_id"), str) else None,
            number=number,
            error=error if isinstance(error, dict) else None,
            node_errors=node_errors if isinstance(node_errors, dict) else {},
            text=response.text[:_BODY_LIMIT],
            retry_after_s=_seconds(response.headers.get("Retry-After")),
        )

    async def prompt_state(self, prompt_id: JobId) -> PromptState:
        """Where the prompt is. On old servers it reads the queue first, then the history.

        Raises:
            ServerUnreachable: no complete answer in time.
            ProtocolError: an answer that is not ComfyUI's.
        """
        response = await self._send("GET", f"/api/jobs/{prompt_id}")
        raw = _lenient(response.content)
        if response.status_code == 404 and not isinstance(raw, dict):
            return await self._state_of_old_server(prompt_id)
        if response.status_code == 404:
            return await self._state_in_history(prompt_id)
        if response.status_code != 200 or not isinstance(raw, dict):
            # One broken entry makes this route answer 500 for all: the two old ones still work.
            return await self._state_of_old_server(prompt_id)
        try:
            return PromptState(phase=Phase(str(raw.get("status"))), number=finite(raw.get("priority")))
        except ValueError as exc:
            raise ProtocolError(self.shown_url, f"job status {raw.get('status')!r}") from exc

    async def _state_of_old_server(self, prompt_id: JobId) -> PromptState:
        for phase, entries in (await self.queue()).items():
            for number, queued_id in entries:
                if queued_id == prompt_id:
                    return PromptState(phase=phase, number=number)
        return await self._state_in_history(prompt_id)

    async def _state_in_history(self, prompt_id: JobId) -> PromptState:
        """An entry without a status is unknown to the newer route, and may well be a success."""
        entry = await self.history(prompt_id)
        if entry is None:
            return PromptState(phase=Phase.UNKNOWN)
        phase = Phase.COMPLETED if entry.succeeded or not entry.has_status else Phase.FAILED
        return PromptState(phase=phase, number=entry.number)

    async def queue(self) -> dict[Phase, tuple[tuple[float, str], ...]]:
        """Running and pending prompts as (number, id), pending ones in the order in which they run."""
        raw = await self._json("GET", "/queue")
        return {
            Phase.IN_PROGRESS: _queued(raw.get("queue_running")),
            Phase.PENDING: tuple(sorted(_queued(raw.get("queue_pending")))),
        }

    async def history(self, prompt_id: JobId) -> HistoryEntry | None:
        """The history entry, or None when the server has none."""
        raw = await self._json("GET", f"/history/{prompt_id}")
        return read_history(raw[prompt_id]) if prompt_id in raw else None

    async def cancel(self, prompt_id: JobId) -> None:
        """Ask for an end. It can be lost: repeat until `prompt_state` says that it is over."""
        response = await self._send("POST", f"/api/jobs/{prompt_id}/cancel")
        if response.status_code == 404 or response.status_code == 405:
            await self._send("POST", "/queue", json={"delete": [prompt_id]})
            await self._send("POST", "/interrupt", json={"prompt_id": prompt_id})

    async def free(self) -> None:
        """Have models unloaded and cached results dropped, after the running prompt.

        A server that does not answer is left as it is.
        """
        try:
            await self._send("POST", "/free", json={"unload_models": True, "free_memory": True})
        except ServerUnreachable as exc:
            logger.warning("/free: %s", exc)

    async def log_tail(self) -> str:
        """The end of the server's own log, for the evidence of a failure; empty where it gives none.

        Source: `api_server/routes/internal/internal_routes.py` in ComfyUI at 0.27.0.
        """
        response = await self._send("GET", "/internal/logs", timeout_s=_LOG_TIMEOUT_S)
        raw = _lenient(response.content)
        return raw[-_LOG_TAIL:] if response.status_code == 200 and isinstance(raw, str) else ""

    async def system_stats(self, *, timeout_s: float = 3.0) -> SystemStats:
        """Version and device. Answering proves little: a server whose worker is dead does it too."""
        raw = await self._json("GET", "/system_stats", timeout_s=timeout_s)
        system, devices = raw.get("system"), raw.get("devices")
        version = system.get("comfyui_version") if isinstance(system, dict) else None
        first = devices[0] if isinstance(devices, list) and devices else {}
        try:
            device = Device.model_validate(first or {})
        except ValidationError as exc:
            raise ProtocolError(self.shown_url, "GET /system_stats describes no device") from exc
        return SystemStats(version=str(version or "unknown"), device=device)

    async def object_info(self) -> bytes:
        """All node classes with their inputs: the node schema of this server, about 1.4 MB."""
        response = await self._send("GET", "/object_info", timeout_s=_OBJECT_INFO_TIMEOUT_S)
        if response.status_code != 200:
            raise _other_answer(self.shown_url, response)
        return response.content

    async def listing(self, folder: str = "") -> tuple[str, ...]:
        """The keys of the models folders, or the files in one of them; () for what the server has not."""
        response = await self._send("GET", f"/models/{quote(folder, safe='')}" if folder else "/models")
        raw = _lenient(response.content)
        if response.status_code != 200 or not isinstance(raw, list):
            return ()
        return tuple(item for item in raw if isinstance(item, str))

    async def other_route(self, path: str, *, timeout_s: float | None = None) -> bytes | None:
        """What the server answers to a GET that custom nodes may have added; None when it does not.

        Raises:
            ServerUnreachable: no complete answer in time.
        """
        response = await self._send("GET", path, timeout_s=timeout_s)
        return response.content if response.status_code == 200 else None

    async def upload(self, file: Path, *, name: str, subfolder: str) -> str:
        """Put an input file on the server; the name to use in a graph is the one it returns."""
        with file.open("rb") as stream:
            response = await self._send(
                "POST",
                "/upload/image",
                files={"image": (name, stream)},
                data={"subfolder": subfolder, "type": "input", "overwrite": "true"},
            )
        raw = _lenient(response.content)
        if response.status_code != 200 or not isinstance(raw, dict) or not isinstance(raw.get("name"), str):
            raise ProtocolError(self.shown_url, f"POST /upload/image answered {response.status_code}")
        folder = str(raw.get("subfolder") or "")
        return f"{folder}/{raw['name']}" if folder else raw["name"]

    async def download(self, entry: OutputEntry, target: Path) -> tuple[str, int]:
        """Stream a file to `target`; gives its SHA-256 and its size in bytes.

        Raises:
            ServerUnreachable: refused, reset, or fewer bytes than announced.
            ProtocolError: another status than 200, such as 404 for a file that was taken away.
        """
        query = {"filename": entry.filename, "subfolder": entry.subfolder, "type": entry.type}
        digest, size = hashlib.sha256(), 0
        async with self._stream("/view", query) as response:
            if response.status_code != 200:
                said = f"/view of {entry.filename}: {response.status_code}"
                raise ProtocolError(self.shown_url, said, response.status_code)
            with target.open("wb") as file:
                async for chunk in response.aiter_bytes(1 << 20):
                    digest.update(chunk)
                    size += file.write(chunk)
        return digest.hexdigest(), size

    @asynccontextmanager
    async def _stream(self, path: str, query: dict[str, str]) -> AsyncIterator[httpx.Response]:
        try:
            async with self._http.stream(path, query) as response:
                yield response
        except httpx.HTTPError as exc:
            raise ServerUnreachable(self.shown_url, _said(exc)) from exc

    async def _send(self, method: str, path: str, **options: Any) -> httpx.Response:
        try:
            return await self._http.send(method, path, **options)
        except httpx.HTTPError as exc:
            is_refused = _was_refused(exc)
            raise ServerUnreachable(self.shown_url, f"{method} {path}: {_said(exc)}", is_refused) from exc
        except httpx.InvalidURL as exc:
            raise ServerUnreachable(self.shown_url, "not an address of a server") from exc

    async def _json(self, method: str, path: str, **options: Any) -> dict[str, Any]:
        response = await self._send(method, path, **options)
        raw = _lenient(response.content)
        if response.status_code != 200 or not isinstance(raw, dict):
            raise _other_answer(self.shown_url, response)
        return raw


def _other_answer(shown_url: str, response: httpx.Response) -> ProtocolError:
    """What was answered, with the beginning of its text: it tells what program it was."""
    request = response.request
    text = " ".join(response.text[:_SHOWN_LIMIT].split())
    said = f"{request.method} {request.url.path} answered {response.status_code}"
    return ProtocolError(shown_url, f"{said} {text!r}" if text else said, response.status_code)


def _was_refused(exc: BaseException) -> bool:
    """Whether nothing listens there; a name that is not found, or no route, may be a matter of a moment."""
    seen: BaseException | None = exc
    while seen is not None:
        if isinstance(seen, ConnectionRefusedError):
            return True
        seen = seen.__cause__ or seen.__context__
    return False


def _lenient(body: bytes) -> Any:
    """JSON as ComfyUI writes it, NaN and Infinity included; None when it is none."""
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None


def _queued(entries: Any) -> tuple[tuple[float, str], ...]:
    return tuple(
        (number, str(entry[1]))
        for entry in (entries if isinstance(entries, list) else ())
        if isinstance(entry, list) and len(entry) > 1 and (number := finite(entry[0])) is not None
    )


def _seconds(header: str | None) -> float | None:
    return float(header) if header is not None and header.isdecimal() else None


def _said(exc: httpx.HTTPError) -> str:
    return str(exc) or type(exc).__name__
