"""Files made to take long: four times as much takes about four times as long, never sixteen times."""

import json
import struct
import time
import zlib
from collections.abc import Callable
from typing import Any

import pytest

from comfyfarm.ids import NodeId
from comfyfarm.workflow.checks.likeness import Suggestions
from comfyfarm.workflow.node import make_node
from comfyfarm.workflow.preflight import preflight
from comfyfarm.workflow.schema import NodeSchema

_MOST = 8.5  # times as long for four times as much: 4 is linear, 16 is quadratic
_EMPTY: dict[str, Any] = {
    "class_type": "EmptyImage",
    "inputs": {"width": 64, "height": 64, "batch_size": 1, "color": 0},
}


def _api(graph: dict[str, Any]) -> bytes:
    return json.dumps(graph).encode()


def _ui(nodes: list[dict[str, Any]], links: list[list[Any]], **more: Any) -> bytes:
    return json.dumps({"version": 0.4, "nodes": nodes, "links": links, **more}).encode()


def _ui_node(number: int, kind: str, **more: Any) -> dict[str, Any]:
    plain = {"id": number, "type": kind, "mode": 0, "order": number, "pos": [0, 0], "properties": {}}
    return {**plain, "inputs": [], "outputs": [], **more}


def _takes(name: str, link: int, kind: str = "IMAGE") -> list[dict[str, Any]]:
    return [{"name": name, "type": kind, "link": link}]


def _gives(*links: int) -> list[dict[str, Any]]:
    return [{"name": "IMAGE", "type": "IMAGE", "links": list(links)}]


def _wrong_choices(count: int) -> bytes:
    graph: dict[str, Any] = {"0": _EMPTY}
    for number in range(count):
        inputs = {"image": [str(number), 0], "width": 1, "height": 1, "crop": f"cen{number}ter"}
        inputs["upscale_method"] = f"near{number}est-exact"
        graph[str(number + 1)] = {"class_type": "ImageScale", "inputs": inputs}
    return _api(graph)


def _files_with_hints(count: int) -> bytes:
    hints = [{"name": f"m{n}.safetensors", "url": "https://x/y", "directory": "vae"} for n in range(count)]
    values = [f"a{n}.safetensors" for n in range(count)]
    return _ui([_ui_node(1, "Foo", widgets_values=values, properties={"models": hints})], [])


def _many_inputs(count: int) -> bytes:
    inputs = {"image": ["0", 0], **{f"x{n}": n for n in range(count)}}
    return _api({"0": _EMPTY, "1": {"class_type": "ImageInvert", "inputs": inputs}})


def _fan_out(count: int) -> bytes:
    nodes = [_ui_node(0, "EmptyImage", outputs=_gives(*range(count)), widgets_values=[64, 64, 1, 0])]
    nodes += [_ui_node(n + 1, "PreviewImage", inputs=_takes("images", n)) for n in range(count)]
    return _ui(nodes, [[n, 0, 0, n + 1, 0, "IMAGE"] for n in range(count)])


def _passing(kind: str, name: str, mode: int) -> Callable[[int], bytes]:
    """A chain of nodes that do not run; behind each a node that does, which makes them be walked again."""

    def made(count: int) -> bytes:
        nodes = [_ui_node(0, "EmptyImage", outputs=_gives(0), widgets_values=[64, 64, 1, 0])]
        links: list[list[Any]] = []
        for at in range(count):
            passing, shown = 2 * at + 1, 2 * at + 2
            links.append([2 * at, max(passing - 2, 0), 0, passing, 0, "IMAGE"])
            links.append([2 * at + 1, passing, 0, shown, 0, "IMAGE"])
            given = _gives(2 * at + 1, 2 * at + 2)
            nodes.append(_ui_node(passing, kind, mode=mode, inputs=_takes(name, 2 * at), outputs=given))
            nodes.append(_ui_node(shown, "PreviewImage", inputs=_takes("images", 2 * at + 1)))
        return _ui(nodes, links)

    return made


def _set_and_get(count: int) -> bytes:
    """Each variable is set from the one before."""
    nodes = [_ui_node(0, "EmptyImage", outputs=_gives(0), widgets_values=[64, 64, 1, 0])]
    links: list[list[Any]] = []
    for at in range(count):
        setter, getter, shown = 3 * at + 1, 3 * at + 2, 3 * at + 3
        links.append([2 * at, max(setter - 2, 0), 0, setter, 0, "IMAGE"])
        links.append([2 * at + 1, getter, 0, shown, 0, "IMAGE"])
        named: dict[str, Any] = {"widgets_values": [f"v{at}"]}
        nodes.append(_ui_node(setter, "SetNode", inputs=_takes("IMAGE", 2 * at), outputs=_gives(), **named))
        nodes.append(_ui_node(getter, "GetNode", outputs=_gives(2 * at + 1), **named))
        nodes.append(_ui_node(shown, "PreviewImage", inputs=_takes("images", 2 * at + 1)))
    return _ui(nodes, links)


def _promoted(count: int) -> bytes:
    inner = [_ui_node(n + 1, "EmptyImage", widgets_values=[64, 64, 1, 0]) for n in range(count)]
    kind = "11111111-1111-1111-1111-111111111111"
    graph = {"id": kind, "name": "S", "inputs": [], "outputs": [], "nodes": inner, "links": []}
    properties = {"proxyWidgets": [[str(n + 1), "width"] for n in range(count)]}
    host = _ui_node(1, kind, widgets_values=list(range(count)), properties=properties)
    return _ui([host], [], definitions={"subgraphs": [graph]})


def _group(count: int) -> bytes:
    """One group node with a chain in it."""
    inner = [
        {**_ui_node(n, "ImageInvert", inputs=_takes("image", 0), outputs=_gives()), "index": n}
        for n in range(count)
    ]
    links = [[n, 0, n + 1, 0, n, "IMAGE"] for n in range(count - 1)]
    groups = {"g": {"nodes": inner, "links": links, "external": []}}
    host = _ui_node(1, "workflow>g", inputs=_takes("image", 0), outputs=_gives())
    return _ui([host], [], extra={"groupNodes": groups})


def _prompt(text: str) -> Callable[[int], bytes]:
    def made(count: int) -> bytes:
        inputs = {"text": text * count}
        return _api({"1": {"class_type": "CLIPTextEncode", "inputs": inputs}, "2": _EMPTY})

    return made


def _png(count: int) -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = chunk(b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0))
    prompt = chunk(b"tEXt", b"prompt\0" + _api({"1": _EMPTY}))
    return b"\x89PNG\r\n\x1a\n" + head + chunk(b"tEXt", b"k\0v") * count + prompt + chunk(b"IEND", b"")


_CASES: dict[str, tuple[Callable[[int], bytes], int]] = {
    "wrong choices": (_wrong_choices, 800),
    "files with hints": (_files_with_hints, 600),
    "inputs of one node": (_many_inputs, 4000),
    "links from one output": (_fan_out, 1200),
    "reroutes": (_passing("Reroute", "", 0), 1000),
    "bypassed nodes": (_passing("ImageInvert", "image", 4), 1000),
    "variables": (_set_and_get, 800),
    "promoted widgets": (_promoted, 800),
    "nodes in a group": (_group, 1000),
    "embeddings": (_prompt("embedding:a, "), 20_000),
    "tags that do not end": (_prompt("<lora:a"), 40_000),
    "braces": (_prompt("{a|"), 40_000),
    "chunks of a picture": (_png, 8000),
}


@pytest.mark.parametrize("case", _CASES)
def test_four_times_as_much_takes_about_four_times_as_long(case: str, schema: NodeSchema) -> None:
    build, count = _CASES[case]
    short, long = build(count), build(4 * count)
    preflight(short, name=case, schema=schema)
    taken = [(_taken_s(long, case, schema), max(_taken_s(short, case, schema), 0.005)) for _ in range(2)]
    assert min(pair[0] for pair in taken) < _MOST * min(pair[1] for pair in taken)


def _taken_s(data: bytes, case: str, schema: NodeSchema) -> float:
    begun = time.process_time()
    preflight(data, name=case, schema=schema)
    return time.process_time() - begun


def test_after_thousands_of_wrong_values_there_are_no_more_suggestions(schema: NodeSchema) -> None:
    like = Suggestions()
    spec = schema.inputs("KSampler")["sampler_name"]
    node = make_node(NodeId("1"), {"class_type": "KSampler", "inputs": {}})
    assert "euler" in like.of(node, spec, "eulr")
    found = [like.of(node, spec, f"eule{number}") for number in range(3000)]
    assert "euler" in found[0]
    assert found[-1] == ()
    assert "euler" in like.of(node, spec, "eulr"), "what is known stays known"
