"""Rows A and B of the list of tricky cases, through the whole of preflight; and that no row is left out.

One test for each row, by its id: `test_a1_…` is row A1. `E`, `W` and `I` are the list's severities.
The rows C to F stand in the files beside this one.
"""

import gzip
import io
import json
import re
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from comfyfarm.workflow.schema import NodeSchema
from comfyfarm.workflow.ui.convert import convert

Look = Callable[..., Any]

LAST_ROW = {"a": 12, "b": 13, "c": 16, "d": 15, "e": 30, "f": 24}


def test_every_row_of_the_list_has_one_test() -> None:
    sources = Path(__file__).parent.glob("test_tricky_rows*.py")
    pattern = re.compile(r"^def test_([a-f]\d+)_", re.MULTILINE)
    found = [row for path in sources for row in pattern.findall(path.read_text(encoding="utf-8"))]

    assert len(found) == 110
    assert set(found) == {f"{part}{row}" for part, last in LAST_ROW.items() for row in range(1, last + 1)}


GRAPH: dict[str, Any] = {
    "1": {"class_type": "EmptyImage", "inputs": {"width": 64, "height": 64, "batch_size": 1, "color": 0}},
    "2": {"class_type": "SaveImage", "inputs": {"images": ["1", 0], "filename_prefix": "t"}},
}
SOURCE = {
    "id": 1,
    "type": "EmptyImage",
    "outputs": [{"name": "IMAGE", "type": "IMAGE", "links": [1]}],
    "widgets_values": [64, 64, 1, 0],
}
SINK = {
    "id": 2,
    "type": "SaveImage",
    "inputs": [{"name": "images", "type": "IMAGE", "link": 1}],
    "widgets_values": ["t"],
}
UI: dict[str, Any] = {"nodes": [SOURCE, SINK], "links": [[1, 1, 0, 2, 0, "IMAGE"]], "version": 0.4}
TEXT = json.dumps(GRAPH).encode()


def one(value: str) -> bytes:
    """A graph of one node with one value, as text."""
    return f'{{"1":{{"class_type":"EmptyImage","inputs":{{"width":{value}}}}}}}'.encode()


def png(**texts: str) -> bytes:
    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    head = chunk(b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 0, 0, 0, 0))
    notes = [chunk(b"tEXt", f"{key}\0{text}".encode("latin-1")) for key, text in texts.items()]
    return b"".join(
        [b"\x89PNG\r\n\x1a\n", head, *notes, chunk(b"IDAT", zlib.compress(b"\0\0")), chunk(b"IEND", b"")]
    )


def test_a1_a_byte_order_mark_is_taken_with_a_warning(look: Look) -> None:
    assert look(b"\xef\xbb\xbf" + TEXT).says == {"W bom"}


def test_a2_utf16_is_refused_by_its_name(look: Look) -> None:
    for data in (TEXT.decode().encode("utf-16"), b"\xfe\xff" + TEXT.decode().encode("utf-16-be")):
        assert look(data).says == {"E not_utf8"}
        assert "UTF-16" in look(data).words("not_utf8")


def test_a3_latin1_is_refused_with_the_offset(look: Look) -> None:
    data = '{"1":{"inputs":{"text":"café"}}}'.encode("latin-1")

    assert look(data).says == {"E not_utf8"}
    assert f"offset {data.index(0xE9)}" in look(data).words("not_utf8")


def test_a4_numbers_that_are_not_finite_are_refused_with_their_path(look: Look) -> None:
    for value in ("NaN", "Infinity", "-Infinity", "1e999"):
        assert "E non_finite 1.width" in look(one(value)).says_where
        assert "$.1.inputs.width" in look(one(value)).words("non_finite")


def test_a5_a_key_that_occurs_twice_is_refused(look: Look) -> None:
    seen = look(b'{"1":{"class_type":"EmptyImage","inputs":{}},"1":{"class_type":"SaveImage","inputs":{}}}')

    assert "E duplicate_key" in seen.says
    assert "'1'" in seen.words("duplicate_key")


def test_a6_deep_nesting_is_refused_before_anything_recurses(look: Look) -> None:
    for data in (b'{"a":' * 10_000 + b"1" + b"}" * 10_000, b"[" * 100_000, one("[" * 10_000 + "]" * 10_000)):
        assert look(data).says == {"E too_deep"}


def test_a7_a_number_of_five_thousand_digits_is_refused(look: Look) -> None:
    seen = look(one("9" * 5_000))

    assert "E int_too_long 1.width" in seen.says_where
    assert len(seen.words("int_too_long")) < 500


def test_a8_half_a_surrogate_pair_is_refused(look: Look) -> None:
    assert "E lone_surrogate 1.width" in look(one('"\\ud800"')).says_where


def test_a9_what_is_no_json_is_refused_with_line_and_column(look: Look) -> None:
    for data in (b'{"1":{"class_type":"X","inputs":{},\n}}', b'{\n// a comment\n"1":{}}'):
        assert look(data).says == {"E bad_json"}
        assert "line 2, column 1" in look(data).words("bad_json")


def test_a10_what_holds_no_graph_is_refused(look: Look) -> None:
    for data in (b"", b"null", b"[]", b'"text"', b"3"):
        assert look(data).says == {"E not_a_workflow"}


def test_a11_too_much_is_refused_and_a_picture_in_a_widget_is_told_but_not_shown(look: Look) -> None:
    seen = look({**GRAPH, "1": {**GRAPH["1"], "inputs": {**GRAPH["1"]["inputs"], "x": "QUJD" * 500_000}}})

    assert "W too_large 1.x" in seen.says_where
    assert "QUJD" not in seen.report.model_dump_json()
    assert look(b'{"a":"' + b"A" * 101 * 2**20 + b'"}').says == {"E too_large"}


def test_a12_a_picture_that_is_called_json_is_read_as_a_picture(look: Look) -> None:
    seen = look(png(prompt=TEXT.decode()), name="w.json")

    assert (seen.format, seen.says) == ("api", {"I embedded"})


def test_b1_ui_format_is_converted_and_told(look: Look) -> None:
    seen = look(UI)

    assert (seen.format, seen.says) == ("ui", {"I ui_format"})
    assert "no server takes" in seen.words("ui_format")


def test_b2_the_body_of_a_request_is_unwrapped(look: Look) -> None:
    seen = look({"prompt": GRAPH, "client_id": "x", "extra_data": {"extra_pnginfo": {"workflow": UI}}})

    assert (seen.format, seen.says) == ("api", {"I wrapped"})


def test_b3_wrappers_of_services_are_unwrapped_and_json_in_a_text(look: Look) -> None:
    for body in (
        {"input": {"workflow": GRAPH, "images": [{"name": "a.png", "image": "QUJD"}]}},
        {"workflow": TEXT.decode()},
        {"input": {"workflow": TEXT.decode()}},
    ):
        assert (look(body).format, look(body).says) == ("api", {"I wrapped"})


def test_b4_a_node_called_prompt_is_no_wrapper(look: Look) -> None:
    seen = look(
        {
            "prompt": GRAPH["1"],
            "2": {**GRAPH["2"], "inputs": {"images": ["prompt", 0], "filename_prefix": "t"}},
        }
    )

    assert (seen.format, seen.says) == ("api", set())
    assert set(seen.report.classes) == {"prompt", "2"}


def test_b5_links_may_be_objects_or_lists_or_both(look: Look) -> None:
    link = {"id": 1, "origin_id": 1, "origin_slot": 0, "target_id": 2, "target_slot": 0, "type": "IMAGE"}
    for links in ([link], [link, [9, 1, 0, 2, 0, "IMAGE"]]):
        seen = look({"version": 1, "state": {"lastNodeId": 2}, "nodes": UI["nodes"], "links": links})
        assert (seen.format, seen.says) == ("ui", {"I ui_format"})


def test_b6_values_in_an_object_are_read_by_name(look: Look) -> None:
    loader = {"id": 3, "type": "CheckpointLoaderSimple", "widgets_values": {"ckpt_name": "a.safetensors"}}
    video = {"id": 4, "type": "VHS_LoadVideo", "widgets_values": {"video": "a.mp4", "videopreview": {}}}
    seen = look({**UI, "nodes": [SOURCE, SINK, loader, video]})

    assert seen.models == ["3.ckpt_name checkpoints/a.safetensors file"]
    assert seen.assets == ["4.video input/a.mp4 input"]


def test_b7_keys_beside_the_nodes_are_dropped_and_told(look: Look) -> None:
    seen = look({**GRAPH, "_meta": {"a": 1}, "version": 0.4, "_comment": "x"})

    assert seen.says_where == {f"W stray_key None.{key}" for key in ("_meta", "version", "_comment")}
    assert set(seen.report.classes) == {"1", "2"}


def test_b8_a_png_gives_values_of_its_prompt_and_packs_of_its_workflow(look: Look) -> None:
    pack = {"id": 1, "type": "Odd", "properties": {"aux_id": "a/b", "ver": "a" * 40}, "widgets_values": []}
    ran = {"1": {"class_type": "Odd", "inputs": {"vae_name": "a.safetensors"}}, "2": GRAPH["2"]}
    note = {"id": 7, "type": "VAELoader", "mode": 2, "widgets_values": ["muted.safetensors"]}
    tree = {**UI, "nodes": [pack, SINK, note]}
    seen = look(png(prompt=json.dumps(ran), workflow=json.dumps(tree)))
    other = {**UI, "nodes": [{**SOURCE, "widgets_values": [128, 64, 1, 0]}, SINK]}

    assert seen.format == "api"
    assert seen.packs["Odd"] == ("https://github.com/a/b", "a" * 40, "aux_id")
    assert seen.models == ["1.vae_name vae/a.safetensors file", "7.vae_name vae/muted.safetensors file off"]
    assert look(png(prompt=TEXT.decode(), workflow=json.dumps(UI))).says == {"I embedded"}
    differing = look(png(prompt=TEXT.decode(), workflow=json.dumps(other)))
    assert differing.says == {"I embedded", "W carriers_disagree"}
    assert "1.width" in differing.words("carriers_disagree")


def test_b9_a_webp_has_its_graphs_in_exif(look: Look) -> None:
    exif, out = Image.Exif(), io.BytesIO()
    exif[0x0110], exif[0x010F] = f"prompt:{TEXT.decode()}", f"workflow:{json.dumps(UI)}"
    Image.new("RGB", (8, 8)).save(out, "WEBP", exif=exif)

    assert (look(out.getvalue()).format, look(out.getvalue()).says) == ("api", {"I embedded"})


@pytest.mark.parametrize("name", ["tags.mp4", "tags.webm", "tags.flac.gz", "tags.ogg"])
def test_b10_films_and_sounds_have_their_graphs_in_tags(look: Look, data_dir: Path, name: str) -> None:
    data = (data_dir / "carriers" / name).read_bytes()
    data = gzip.decompress(data) if name.endswith(".gz") else data
    assert (look(data).format, look(data).says) == ("api", {"I embedded"})
    if name == "tags.ogg":
        assert look(data[:-20]).says == {"I embedded", "W truncated"}


def test_b11_another_programs_text_is_no_graph(look: Look) -> None:
    assert look(png(parameters="a cat\nSteps: 20, Sampler: Euler a")).says == {"E not_comfy_metadata"}


@pytest.mark.parametrize("kind", ["workflow>My", "workflow/My"])
def test_b12_group_nodes_of_both_spellings_are_unfolded(look: Look, schema: NodeSchema, kind: str) -> None:
    inner = {"type": "VAELoader", "index": 0, "widgets_values": ["a.safetensors"]}
    group = {"nodes": [inner], "links": [], "external": []}
    node = {"id": 5, "type": kind, "widgets_values": ["a.safetensors"]}
    tree = {**UI, "nodes": [SOURCE, SINK, node], "extra": {"groupNodes": {"My": group}}}

    assert look(tree).models == ["5:0.vae_name vae/a.safetensors file"]
    assert set(convert(tree, schema).graph) == {"1", "2", "5:0"}


def test_b13_a_blueprint_has_no_output_and_no_error(look: Look) -> None:
    loose = {
        **SINK,
        "id": 3,
        "type": "ImageInvert",
        "inputs": [{"name": "image", "type": "IMAGE", "link": None}],
    }
    seen = look({"nodes": [SOURCE, loose], "links": []})

    assert {"I no_outputs", "W missing_input"} <= seen.says
    assert not seen.report.has_errors
