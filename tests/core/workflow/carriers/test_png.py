"""PNG and APNG as Pillow writes them for ComfyUI's nodes: row B8 and B11 of the tricky cases."""

import io
import json
import zlib
from typing import Any

import pytest
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from comfyfarm.workflow.carriers.embedded import TEXT_LIMIT_BYTES, embedded
from comfyfarm.workflow.findings import Refused


def picture(info: PngInfo, *, frames: int = 1) -> bytes:
    image, out = Image.new("RGB", (8, 8)), io.BytesIO()
    others = [Image.new("RGB", (8, 8), (number, 0, 0)) for number in range(1, frames)]
    image.save(out, "PNG", pnginfo=info, save_all=frames > 1, append_images=others)
    return out.getvalue()


def chunk(kind: bytes, data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + kind + data + zlib.crc32(kind + data).to_bytes(4, "big")


def with_chunk(kind: bytes, data: bytes) -> bytes:
    whole = picture(PngInfo())
    return whole[:33] + chunk(kind, data) + whole[33:]


def texts(data: bytes) -> dict[str, Any]:
    found = embedded(data, name="p")
    assert found is not None
    assert found.kind == "a PNG picture"
    return {key: json.loads(text) for key, text in found.texts}


def code(data: bytes) -> str:
    with pytest.raises(Refused) as caught:
        embedded(data, name="p")
    return caught.value.findings[0].code


def test_plain_texts_are_found(graph: dict[str, Any], prompt: str) -> None:
    info = PngInfo()
    info.add_text("prompt", prompt)
    info.add_text("workflow", '{"nodes":[]}')
    info.add_text("Software", "another text")

    assert texts(picture(info)) == {"prompt": graph, "workflow": {"nodes": []}}


def test_packed_texts_are_found(graph: dict[str, Any], prompt: str) -> None:
    info = PngInfo()
    info.add_text("prompt", prompt, zip=True)

    assert texts(picture(info)) == {"prompt": graph}


@pytest.mark.parametrize("is_packed", [False, True])
def test_international_texts_are_found(graph: dict[str, Any], is_packed: bool) -> None:
    info = PngInfo()
    info.add_itxt("prompt", json.dumps(graph, ensure_ascii=False), "en", "Prompt", zip=is_packed)

    assert texts(picture(info)) == {"prompt": graph}


@pytest.mark.parametrize("encoding", ["latin-1", "utf-8"])
def test_plain_texts_are_read_in_either_encoding(graph: dict[str, Any], encoding: str) -> None:
    data = json.dumps(graph, ensure_ascii=False).encode(encoding)

    assert texts(with_chunk(b"tEXt", b"prompt\0" + data)) == {"prompt": graph}


def test_the_private_chunks_of_an_animation_are_found(graph: dict[str, Any], prompt: str) -> None:
    info = PngInfo()
    for key, text in (("prompt", prompt), ("workflow", '{"nodes":[]}')):
        info.add(b"comf", key.encode() + b"\0" + text.encode(), after_idat=True)
    data = picture(info, frames=3)

    assert data.index(b"comf") > data.index(b"IDAT")
    assert texts(data) == {"prompt": graph, "workflow": {"nodes": []}}


def test_the_last_of_equal_keys_counts(graph: dict[str, Any], prompt: str) -> None:
    info = PngInfo()
    info.add_text("prompt", "{}")
    info.add_text("prompt", prompt)

    assert texts(picture(info)) == {"prompt": graph}


def test_a_picture_with_parameters_only_is_refused_as_such() -> None:
    info = PngInfo()
    info.add_text("parameters", "a cat\nNegative prompt: dog\nSteps: 20, Sampler: Euler a")

    with pytest.raises(Refused, match="text of parameters that other programs write") as caught:
        embedded(picture(info), name="p")
    assert caught.value.findings[0].code == "not_comfy_metadata"


def test_a_picture_without_texts_is_refused() -> None:
    with pytest.raises(Refused, match="without a graph") as caught:
        embedded(picture(PngInfo()), name="p")
    assert caught.value.findings[0].code == "not_comfy_metadata"


def test_a_prompt_in_words_is_no_graph() -> None:
    info = PngInfo()
    info.add_text("prompt", "a cat on a mat")

    assert code(picture(info)) == "not_comfy_metadata"


def test_a_cut_picture_still_shows_its_graph_with_a_warning(prompt: str) -> None:
    info = PngInfo()
    info.add_text("prompt", prompt)
    found = embedded(picture(info)[:-20], name="p")

    assert found is not None
    assert found.texts == (("prompt", prompt.encode()),)
    assert [(finding.code, finding.severity) for finding in found.findings] == [("truncated", "warning")]


def test_a_picture_cut_before_its_texts_says_so() -> None:
    with pytest.raises(Refused, match="ends early or is damaged"):
        embedded(b"\x89PNG\r\n\x1a\n", name="p")


def test_a_packed_text_that_grows_beyond_any_graph_is_refused() -> None:
    packed = zlib.compress(b" " * (TEXT_LIMIT_BYTES + 1))

    assert len(packed) < 100_000
    assert code(with_chunk(b"zTXt", b"prompt\0\0" + packed)) == "too_large"


def test_a_damaged_packed_text_is_no_graph() -> None:
    assert code(with_chunk(b"zTXt", b"prompt\0\0not zlib")) == "not_comfy_metadata"
    assert code(with_chunk(b"zTXt", b"prompt\0\x09" + zlib.compress(b"{}"))) == "not_comfy_metadata"
    assert code(with_chunk(b"tEXt", b"no zero byte")) == "not_comfy_metadata"
