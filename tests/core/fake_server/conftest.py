"""Replays recorded traffic against the fake: the same requests, then a comparison of all that came back."""

import asyncio
import contextlib
import gzip
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import aiohttp
import pytest
from yarl import URL

from comfyfarm.clock import SystemClock
from fake_server.comfy import ExtraNodes, FakeComfy, savers
from fake_server.comfy.cache import CachePolicy
from fake_server.comfy.execute import (
    Aborted,
    Behaviour,
    Blocker,
    Call,
    Died,
    Expansion,
    Interrupted,
    NodeRaised,
)
from fake_server.comfy.media import jpeg, png
from fake_server.serve import serve

RECORDINGS = Path(__file__).parents[2] / "data" / "recordings"
_PATIENCE_S = 20.0
_CLOCK = SystemClock()
_TIMES = frozenset({"timestamp", "create_time", "execution_start_time", "execution_end_time"})
_SKIPPED = frozenset({"traceback", "current_inputs"})
_UNORDERED = frozenset({"executed", "current_outputs", "dependent_outputs"})
_WORKER_DIES = frozenset({"BaseException", "KeyboardInterrupt", "SystemExit", "unprintable"})
_UUID = re.compile(r"[0-9a-f]{8}(-?[0-9a-f]{4}){3}-?[0-9a-f]{12}")
_FILE = re.compile(r"_\d{5}(_?\.\w+)$")
_TEMP = re.compile(r"_temp_[a-z]{5}_")

Scenario = dict[str, Any]


class Gate:
    """Holds the recorder's sleeping node at the step where the recorded client sent its next request."""

    def __init__(self) -> None:
        self.allowed = 10**9
        self.used = 0
        self.is_deaf = False

    async def pass_one(self, call: Call) -> None:
        while self.used >= self.allowed:
            await _CLOCK.sleep(0.002)
            if not self.is_deaf:
                call.reporter.stop_if_interrupted()
        self.used += 1


class Differs(AssertionError):
    """The fake's traffic is not the recorded one."""


class Match:
    """Compares values; ids and file names may differ, but each must stand for the same one throughout."""

    def __init__(self) -> None:
        self.names: dict[str, str] = {}

    def same(self, recorded: Any, actual: Any, at: str) -> None:
        if isinstance(recorded, dict) and isinstance(actual, dict):
            self._same_dict(recorded, actual, at)
        elif isinstance(recorded, list) and isinstance(actual, list):
            self._same_list(recorded, actual, at)
        elif isinstance(recorded, str) and isinstance(actual, str):
            self._same_text(recorded, actual, at)
        elif recorded != actual:
            raise Differs(f"{at}: recorded {recorded!r}, got {actual!r}")

    def actual(self, text: str) -> str:
        """The text with recorded names replaced by the fake's own, plain or percent-encoded."""
        for recorded, name in self.names.items():
            text = text.replace(recorded, name).replace(quote(recorded), quote(name))
        return text

    def _same_dict(self, recorded: dict[str, Any], actual: dict[str, Any], at: str) -> None:
        pairs = {self.actual(key): key for key in recorded if key not in _SKIPPED}
        if set(pairs) != set(actual) - _SKIPPED:
            raise Differs(f"{at}: recorded keys {sorted(pairs)}, got {sorted(actual)}")
        for name, key in pairs.items():
            if key not in _TIMES:
                left, right = recorded[key], actual[name]
                if key in _UNORDERED:
                    left, right = sorted(left), sorted(right)
                if key == "errors":
                    left, right = sorted(left, key=str), sorted(right, key=str)
                self.same(left, right, f"{at}.{key}")

    def _same_list(self, recorded: list[Any], actual: list[Any], at: str) -> None:
        if len(recorded) != len(actual):
            raise Differs(f"{at}: recorded {len(recorded)} items, got {len(actual)}: {actual!r}")
        if len(recorded) == 5 and isinstance(recorded[4], list) and isinstance(recorded[1], str):
            # A queue entry: the order of its output nodes is that of a set.
            recorded, actual = [*recorded[:4], sorted(recorded[4])], [*actual[:4], sorted(actual[4])]
        for place, (left, right) in enumerate(zip(recorded, actual, strict=True)):
            self.same(left, right, f"{at}[{place}]")

    def _same_text(self, recorded: str, actual: str, at: str) -> None:
        known = self.names.get(recorded)
        if known is None and recorded == actual:
            return
        if known is None and _shape(recorded) == _shape(actual) != recorded:
            if actual in self.names.values():
                raise Differs(f"{at}: {actual!r} again, where {recorded!r} was recorded")
            self.names[recorded] = known = actual
        if known != actual:
            raise Differs(f"{at}: recorded {recorded!r}, got {actual!r}")


def _shape(text: str) -> str:
    if _UUID.fullmatch(text):
        return "<id>"
    return _FILE.sub(r"_#\1", _TEMP.sub("_temp_*_", text))


class Replay:
    """One scenario, sent to one fake."""

    def __init__(
        self, scenario: Scenario, fake: FakeComfy, *, url: str, gate: Gate, options: Mapping[str, Any]
    ) -> None:
        self.match = Match()
        self._fake = fake
        self._scenario = scenario
        self._url = url
        self._gate = gate
        self._options = options
        self._drop = frozenset(options.get("drop", ()))
        self._skip = frozenset(options.get("skip", ()))
        self._before: Mapping[int, Callable[[FakeComfy], None]] = options.get("before", {})
        self._sockets: dict[str, aiohttp.ClientWebSocketResponse] = {}
        self._received: dict[str, list[Any]] = {}
        self._expected: dict[str, list[Any]] = {}
        self._compared: dict[str, int] = {}
        self._readers: list[asyncio.Task[None]] = []

    async def run(self) -> None:
        timeline = self._scenario["timeline"]
        async with aiohttp.ClientSession(auto_decompress=False) as self._http:
            await self._prime()
            for place, event in enumerate(timeline):
                self._gate.allowed = self._steps_before_request(timeline, place)
                await self._event(event)
            self._gate.allowed = 10**9
            await self._catch_up("the end")
            for ws in self._sockets.values():
                await ws.close()
            await asyncio.gather(*self._readers)
        for label, received in self._received.items():
            extra = received[self._compared[label] :]
            if extra:
                raise Differs(f"socket {label}: more than was recorded: {extra!r}")

    async def _event(self, event: str) -> None:
        kind, name, rest = (*event.split(":"), "")[:3]
        if kind == "http" and rest == "request":
            await self._catch_up(event)
            if int(name) in self._before:
                self._before[int(name)](self._fake)
            if int(name) in self._options.get("idle_before", ()):
                await self.idle()  # the recorder waited, and no message told it for how long
            # The recorded node had not yet noticed the interrupt when the next request came.
            unnoticed = int(name) in self._options.get("unnoticed", ())
            self._gate.is_deaf |= unnoticed
            if int(name) not in self._options.get("unsent", ()):
                await self._exchange(next(each for each in self._scenario["http"] if str(each["id"]) == name))
            self._gate.is_deaf &= unnoticed
        elif kind == "ws" and rest == "open":
            await self._catch_up(event)
            await self._open(name)
        elif kind == "ws" and rest.isdigit():
            await self._message(name, self._scenario["ws"][name]["messages"][int(rest)])

    def _steps_before_request(self, timeline: list[str], now: int) -> int:
        """How many steps the sleeping nodes had taken before the recorded client's next request."""
        done, last = 0, dict[str, int]()
        for place, event in enumerate(timeline):
            kind, name, rest = (*event.split(":"), "")[:3]
            if (kind, rest) in {("http", "request"), ("ws", "open")} and place >= now:
                break
            if kind == "ws" and rest.isdigit():
                body = self._scenario["ws"][name]["messages"][int(rest)].get("json", {})
                if body.get("type") == "progress":
                    prompt_id, value = body["data"]["prompt_id"], body["data"]["value"]
                    # The same id may run twice: a step that is no advance begins another run.
                    done += last.get(prompt_id, 0) if value <= last.get(prompt_id, 0) else 0
                    last[prompt_id] = value
        return done + sum(last.values())

    async def _prime(self) -> None:
        """Run before what the recorded server had in its cache."""
        first = next((each for each in self._scenario["http"] if _submits(each)), None)
        messages = [m["json"] for w in self._scenario["ws"].values() for m in w["messages"] if "json" in m]
        cached = [m["data"]["nodes"] for m in messages if m.get("type") == "execution_cached"]
        cached = [self._options["primed"]] if "primed" in self._options else cached
        if first is None or not cached or not cached[0]:
            return
        graph = {node_id: first["request_body"]["json"]["prompt"][node_id] for node_id in cached[0]}
        graph["prime"] = {"class_type": "PreviewImage", "inputs": {"images": [cached[0][-1], 0]}}
        body = {"prompt": graph, "number": -1}
        async with self._http.post(f"{self._url}/prompt", json=body) as answer:
            assert answer.status == 200, await answer.text()
        await self.idle()
        async with self._http.post(f"{self._url}/history", json={"clear": True}) as answer:
            assert answer.status == 200

    async def idle(self) -> None:
        async with asyncio.timeout(_PATIENCE_S):
            while True:
                async with self._http.get(f"{self._url}/prompt") as answer:
                    if (await answer.json())["exec_info"]["queue_remaining"] == 0:
                        return
                await _CLOCK.sleep(0.002)

    async def _open(self, label: str) -> None:
        recorded = self._scenario["ws"][label]
        first = recorded["messages"][0]["json"]["data"]["status"]["exec_info"]["queue_remaining"]
        if first == 0:
            self._gate.allowed = 10**9
            await self.idle()
        elif len(recorded["messages"]) > 1 and recorded["messages"][1]["json"]["type"] == "executing":
            # A socket that is opened while its prompt runs: right before the first step that it saw.
            bodies = [message.get("json", {}) for message in recorded["messages"]]
            seen = next(each["data"]["value"] for each in bodies if each.get("type") == "progress")
            self._gate.allowed = seen - 1
            await self._until(lambda: self._gate.used == seen - 1)
        url = self._url + self.match.actual(recorded["url"])
        ws = self._sockets[label] = await self._http.ws_connect(URL(url, encoded=True))
        self._received[label], self._expected[label], self._compared[label] = [], [], 0
        self._readers.append(asyncio.create_task(self._read(label, ws)))

    async def _read(self, label: str, ws: aiohttp.ClientWebSocketResponse) -> None:
        async for message in ws:
            if message.type is aiohttp.WSMsgType.TEXT:
                body = _marked(json.loads(message.data))
            else:
                body = _frame(message.data)
            if self._kept(body):
                self._received[label].append(body)

    def _kept(self, body: dict[str, Any]) -> bool:
        kind = body.get("type", f"binary {body.get('event_type_int')}")
        if kind == "status" and "sid" in body["data"]:
            return True
        return kind not in self._drop

    async def _message(self, label: str, message: dict[str, Any]) -> None:
        body = message.get("json", {key: value for key, value in message.items() if key != "dir"})
        if message["dir"] == "recv" and self._kept(body):
            self._expected[label].append(body)
        elif message["dir"] == "send":
            await self._catch_up(f"a message of {label}")
            text = message["text"] if "text" in message else json.dumps(message["json"])
            await self._sockets[label].send_str(text)
        elif message["dir"] == "client_close":
            await self._catch_up(f"the end of {label}")
            await self._sockets[label].close()

    async def _catch_up(self, before: str) -> None:
        """Wait for every message that the recorded client had by now, and compare."""
        for label, expected in self._expected.items():
            try:
                await self._until(lambda: len(self._received[label]) >= len(expected))  # noqa: B023
            except TimeoutError:
                missing = expected[len(self._received[label])]
                raise Differs(f"before {before}: socket {label} never got {missing!r}") from None
            for place in range(self._compared[label], len(expected)):
                self.match.same(expected[place], self._received[label][place], f"ws {label}[{place}]")
            self._compared[label] = len(expected)

    async def _until(self, ready: Callable[[], bool]) -> None:
        async with asyncio.timeout(_PATIENCE_S):
            while not ready():
                await _CLOCK.sleep(0.002)

    async def _exchange(self, recorded: dict[str, Any]) -> None:
        url = URL(self._url + self.match.actual(recorded["path"]), encoded=True)
        headers = dict(recorded["request_headers"] or {})
        data = self._request_body(recorded["request_body"])
        if isinstance(data, aiohttp.FormData):
            headers.pop("Content-Type", None)
        if "Origin" in headers:
            headers["Origin"] = headers["Origin"].replace("8300", str(url.port))
        skip = () if isinstance(data, aiohttp.FormData) else ("Content-Type",)
        if "client_error" in recorded:
            await self._gone(url)
            return
        async with self._http.request(
            recorded["method"], url, data=data, headers=headers, skip_auto_headers=skip
        ) as answer:
            await self._compare(recorded, answer)

    async def _gone(self, url: URL) -> None:
        """Wait until the server's process has ended."""
        async with asyncio.timeout(_PATIENCE_S):
            with contextlib.suppress(aiohttp.ClientError):
                while True:
                    await (await self._http.get(url)).read()

    def _request_body(self, body: dict[str, Any] | None) -> Any:
        if body is None or body["kind"] == "empty":
            return None
        if body["kind"] == "json":
            return self.match.actual(json.dumps(self._in_order(body["json"]))).encode()
        if body["kind"] == "multipart":
            return _form(body["parts"])
        # The recorder kept the text of raw bodies; what was no UTF-8 stands as U+FFFD, sent as one bad byte.
        return body["text"].encode().replace("�".encode(), b"\xff")

    def _in_order(self, body: Any) -> Any:
        """The body with its nodes in the order in which the recorded server's set of outputs had them."""
        order = self._options.get("order")
        if order is None:
            return body
        return body | {"prompt": {node_id: body["prompt"][node_id] for node_id in order}}

    async def _compare(self, recorded: dict[str, Any], answer: aiohttp.ClientResponse) -> None:
        at = f"http {recorded['id']} {recorded['method']} {recorded['path']}"
        if recorded["id"] in self._skip:
            return
        text = await answer.read()
        if answer.status != recorded["status"]:
            raise Differs(f"{at}: recorded {recorded['status']}, got {answer.status}: {text[:300]!r}")
        if answer.headers.get("Content-Type") != recorded["content_type"]:
            raise Differs(
                f"{at}: recorded {recorded['content_type']}, got {answer.headers.get('Content-Type')}"
            )
        for name, value in recorded.get("response_headers", {}).items():
            if name != "Content-Range":
                self.match.same(self.match.actual(value), answer.headers.get(name), f"{at} {name}")
        body = recorded["body"]
        if body["kind"] == "json":
            self.match.same(body["json"], _marked(json.loads(text)), at)
        elif body["kind"] == "empty" or body["kind"] == "text":
            assert text.decode() == body.get("text", ""), at


def _marked(value: Any) -> Any:
    """The value with NaN and Infinity as the recordings write them."""
    text = json.dumps(value)
    return json.loads(text, parse_constant=lambda word: f"__{word}__")


def _frame(data: bytes) -> dict[str, Any]:
    event = int.from_bytes(data[:4], "big")
    frame: dict[str, Any] = {"binary": True, "event_type_int": event}
    length = int.from_bytes(data[4:8], "big")
    if event == 3:
        frame |= {"node_id": data[8 : 8 + length].decode(), "text": data[8 + length :].decode()}
    elif event == 4:
        frame["metadata_json"] = json.loads(data[8 : 8 + length])
    else:
        frame["image_format_int"] = length
    return frame


def _form(parts: list[dict[str, Any]]) -> aiohttp.FormData:
    form = aiohttp.FormData(default_to_multipart=True)
    for part in parts:
        value = part["value"]
        if isinstance(value, dict):
            # The bytes were not kept: the same hash stands for the same content.
            picture = part["content_type"] == "image/png" and value["size"]
            value = png(value["sha256"], 8, 8) if picture else value["sha256"].encode()[: value["size"]]
        form.add_field(part["name"], value, filename=part["filename"], content_type=part["content_type"])
    return form


def rec_nodes(gate: Gate, errors: Mapping[str, tuple[str, str]], options: Mapping[str, Any]) -> ExtraNodes:
    """Stand-ins for the recorder's own node classes."""
    pack = json.loads((RECORDINGS / "rec_nodes.json").read_text())
    behaviours: dict[str, Behaviour] = {
        "RecSleep": _sleeps(gate),
        "RecRaise": _fails(errors),
        "RecAsync": _fails_later(errors),
        "RecUI": _shows(pack["ui"]),
        "RecText": _tells_text,
        "RecExpand": _expands,
        "RecCycle": _expands_into_a_cycle,
        "RecBlock": _blocks,
    }
    behaviours |= dict.fromkeys(options.get("slow", ()), _hears_late(options.get("until_interrupted", ())))
    behaviours |= dict.fromkeys(options.get("raises", ()), _raises(errors))
    return ExtraNodes(
        classes=pack["classes"],
        behaviours=behaviours,
        checks={"RecValidate": _checks},
        asynchronous={"RecAsync"},
        is_changed={"RecIsChanged": _is_changed},
    )


def _sleeps(gate: Gate) -> Behaviour:
    async def sleep(call: Call) -> None:
        steps = int(call.inputs["steps"])
        for step in range(steps):
            await gate.pass_one(call)
            preview = jpeg(call.digest, 64) if call.inputs.get("preview") else None
            await call.reporter.progress(step + 1, steps, preview=preview)

    return sleep


def _fails(errors: Mapping[str, tuple[str, str]]) -> Behaviour:
    async def fail(call: Call) -> None:
        kind = call.inputs["kind"]
        if kind == "abort":
            raise Aborted
        if kind in _WORKER_DIES:
            raise Died
        raise NodeRaised(*errors[kind])

    return fail


def _fails_later(errors: Mapping[str, tuple[str, str]]) -> Behaviour:
    async def wait(call: Call) -> None:
        await call.reporter.wait(0.01)
        if call.inputs["fail"]:
            raise NodeRaised(*errors[""])

    return wait


def _raises(errors: Mapping[str, tuple[str, str]]) -> Behaviour:
    async def fail(_call: Call) -> None:
        raise NodeRaised(*errors[""])

    return fail


def _shows(outputs: Mapping[str, dict[str, Any]]) -> Behaviour:
    async def show(call: Call) -> dict[str, Any]:
        if call.inputs["kind"] == "non_json":
            return {"value": [b"bytes"]}
        return outputs[call.inputs["kind"]]

    return show


def _hears_late(node_ids: Sequence[str]) -> Behaviour:
    """The recorded node took seconds, and noticed no interrupt meanwhile."""

    async def work(call: Call) -> dict[str, Any] | None:
        if call.node_id in node_ids:
            with contextlib.suppress(Interrupted):
                await call.reporter.wait(_PATIENCE_S)
        return savers.save(call)

    return work


async def _tells_text(call: Call) -> None:
    await call.reporter.progress_text(f"progress: {call.inputs['text']}")


async def _expands(call: Call) -> Expansion:
    colour = {"width": 8, "height": 8, "batch_size": 1, "color": call.inputs["color"]}
    one, two, three = (f"{call.node_id}.0.0.{place}" for place in (1, 2, 3))
    nodes = {
        one: {"class_type": "EmptyImage", "inputs": colour},
        two: {"class_type": "ImageInvert", "inputs": {"image": [one, 0]}},
    }
    if call.inputs["fail_inside"]:
        inputs = {"kind": "RuntimeError", "seed": 0, "image": [two, 0]}
        nodes[three] = {"class_type": "RecRaise", "inputs": inputs}
    return Expansion(nodes=nodes, results=([list(nodes)[-1], 0],))


async def _expands_into_a_cycle(call: Call) -> Expansion:
    one, two = (f"{call.node_id}.0.0.{place}" for place in (1, 2))
    nodes = {
        one: {"class_type": "ImageInvert", "inputs": {"image": [two, 0]}},
        two: {"class_type": "ImageInvert", "inputs": {"image": [one, 0]}},
    }
    return Expansion(nodes=nodes, results=([one, 0],))


async def _blocks(call: Call) -> Blocker:
    return Blocker(message=call.inputs["message"] or None)


def _checks(inputs: Mapping[str, Any]) -> Mapping[str, str | bool]:
    verdicts: dict[str, str | bool] = {"message": "recorded validation message", "false": False}
    if inputs["mode"] == "raise":
        raise RuntimeError("VALIDATE_INPUTS raised")
    return dict.fromkeys(("value", "mode"), verdicts.get(inputs["mode"], True))


def _is_changed(inputs: Mapping[str, Any]) -> float:
    if inputs["mode"] == "raise":
        raise RuntimeError("IS_CHANGED raised")
    return math.nan if inputs["mode"] == "nan" else 1.0


def _submits(exchange: dict[str, Any]) -> bool:
    return bool(exchange["method"] == "POST" and exchange["path"] == "/prompt")


def _recorded_errors(scenario: Scenario) -> dict[str, tuple[str, str]]:
    """What the recorder's failing node raised, by its `kind`."""
    errors: dict[str, tuple[str, str]] = {}
    by_prompt = {}
    for each in scenario["http"]:
        if _submits(each) and each["status"] == 200:
            body = each["request_body"].get("json") or json.loads(each["request_body"]["text"])
            by_prompt[each["body"]["json"]["prompt_id"]] = body["prompt"]
    for data in _error_messages(scenario):
        node = by_prompt.get(data["prompt_id"], {}).get(data["node_id"], {"inputs": {}})
        text = data["exception_message"].split("\nThis error means")[0]
        # A node that an expansion made is not in the prompt.
        kind = data["exception_type"] if data["node_type"] == "RecExpand" else node["inputs"].get("kind", "")
        errors[kind] = (data["exception_type"], text.removesuffix("\n"))
    return errors


def _error_messages(scenario: Scenario) -> list[dict[str, Any]]:
    sent = [m.get("json", {}) for socket in scenario["ws"].values() for m in socket["messages"]]
    found = [body["data"] for body in sent if body.get("type") == "execution_error"]
    for each in scenario["http"]:
        entries = each["body"].get("json") if each["path"].startswith("/history/") else None
        for entry in (entries or {}).values():
            found += [data for kind, data in entry["status"]["messages"] if kind == "execution_error"]
    return found


def _first_number(scenario: Scenario) -> int:
    """The number that the recorded server was at."""
    before = 0
    for each in scenario["http"]:
        if not _submits(each):
            continue
        body = each["request_body"]
        asked = body.get("json", {}) if body["kind"] == "json" else {}
        if each["status"] == 200 and "number" not in asked and body["kind"] == "json":
            return int(abs(each["body"]["json"]["number"])) - before
        before += "number" not in asked
    return 0


@pytest.fixture
def replay(tmp_path: Path) -> Callable[..., Any]:
    """Send a recorded scenario to a fresh fake, and compare everything that comes back."""

    async def play(scenario: Scenario, **options: Any) -> FakeComfy:
        gate = Gate()
        fake = FakeComfy(
            models_dir=tmp_path / "models",
            first_number=options.get("first_number", _first_number(scenario)),
            cache=options.get("cache", CachePolicy.CLASSIC),
            extra_nodes=rec_nodes(gate, _recorded_errors(scenario), options),
        )
        prepare: Callable[[FakeComfy], None] | None = options.get("prepare")
        if prepare is not None:
            prepare(fake)
        with serve(fake.app) as url:
            await Replay(scenario, fake, url=url, gate=gate, options=options).run()
        return fake

    return play


@pytest.fixture(scope="session")
def scenarios() -> Callable[[str], dict[str, Scenario]]:
    """The scenarios of one topic, by name."""

    def read(topic: str) -> dict[str, Scenario]:
        found = json.loads(gzip.decompress((RECORDINGS / f"{topic}.json.gz").read_bytes()))
        return {each["scenario"]: each for each in found}

    return read
