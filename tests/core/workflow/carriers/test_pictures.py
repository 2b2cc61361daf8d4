"""WebP and JPEG as Pillow writes them for ComfyUI's nodes, SVG and OpenEXR as ComfyUI itself does: row B9."""

import io
import json
from typing import Any

import pytest
from PIL import ExifTags, Image

from comfyfarm.workflow.carriers.embedded import embedded
from comfyfarm.workflow.findings import Refused

MODEL, MAKE, DESCRIPTION, USER_COMMENT = 0x0110, 0x010F, 0x010E, 0x9286


def picture(exif: Image.Exif | bytes, form: str, *, frames: int = 1) -> bytes:
    image, out = Image.new("RGB", (8, 8)), io.BytesIO()
    others = [Image.new("RGB", (8, 8), (number, 0, 0)) for number in range(1, frames)]
    image.save(out, form, exif=exif, save_all=frames > 1, append_images=others)
    return out.getvalue()


def exif_of(tags: dict[int, str]) -> Image.Exif:
    exif = Image.Exif()
    for tag, text in tags.items():
        exif[tag] = text
    return exif


def texts(data: bytes) -> dict[str, Any]:
    found = embedded(data, name="p")
    assert found is not None
    assert found.findings == ()
    return {key: json.loads(text) for key, text in found.texts}


@pytest.mark.parametrize(("form", "frames"), [("WEBP", 1), ("WEBP", 3), ("JPEG", 1)])
def test_texts_are_found_below_model_and_make(
    graph: dict[str, Any], prompt: str, form: str, frames: int
) -> None:
    exif = exif_of({MODEL: f"prompt:{prompt}", MAKE: 'workflow:{"nodes":[]}', DESCRIPTION: 'other:{"a":1}'})

    assert texts(picture(exif, form, frames=frames)) == {"prompt": graph, "workflow": {"nodes": []}}


def test_the_workflow_may_stand_further_down(graph: dict[str, Any]) -> None:
    exif = exif_of({MAKE: "other:1", DESCRIPTION: f"workflow:{json.dumps(graph)}"})

    assert texts(picture(exif, "WEBP")) == {"workflow": graph}


def test_both_byte_orders_are_read(prompt: str, graph: dict[str, Any]) -> None:
    text = b"prompt:" + prompt.encode() + b"\0"
    entry = [0x0110, 2, len(text), 26]
    for order, head in (("big", b"MM\0*\0\0\0\x08"), ("little", b"II*\0\x08\0\0\0")):
        sizes = (2, 2, 4, 4)
        numbers = b"".join(
            number.to_bytes(size, order)  # type: ignore[arg-type]
            for number, size in zip([1, *entry, 0], (2, *sizes, 4), strict=True)
        )
        assert texts(picture(b"Exif\0\0" + head + numbers + text, "WEBP")) == {"prompt": graph}


def test_a_user_comment_in_json_is_found(graph: dict[str, Any], prompt: str) -> None:
    for comment in (b"ASCII\0\0\0" + prompt.encode(), b"UNICODE\0" + prompt.encode("utf-16-be"),
                    b"UNICODE\0" + prompt.encode("utf-16-le")):  # fmt: skip
        exif = Image.Exif()
        exif.get_ifd(ExifTags.IFD.Exif)[USER_COMMENT] = comment
        assert texts(picture(exif, "JPEG")) == {"usercomment": graph}


def test_a_user_comment_in_words_is_refused_as_parameters() -> None:
    exif = Image.Exif()
    exif.get_ifd(ExifTags.IFD.Exif)[USER_COMMENT] = b"ASCII\0\0\0a cat\nSteps: 20"

    with pytest.raises(Refused, match="text of parameters"):
        embedded(picture(exif, "WEBP"), name="p")


@pytest.mark.parametrize("form", ["WEBP", "JPEG"])
def test_a_picture_without_texts_is_refused(form: str) -> None:
    with pytest.raises(Refused, match="without a graph") as caught:
        embedded(picture(Image.Exif(), form), name="p")
    assert caught.value.findings[0].code == "not_comfy_metadata"


def test_the_metadata_of_a_drawing_is_found(graph: dict[str, Any]) -> None:
    inner = json.dumps({"prompt": graph, "workflow": {"nodes": []}}, indent=2)
    drawing = f'<svg width="1">\n  <metadata>\n <![CDATA[\n {inner}\n ]]>\n </metadata>\n <path/></svg>'
    quoted = inner.replace('"', "&quot;")
    escaped = f"<?xml version='1.0'?><svg><metadata id='m'>{quoted}</metadata></svg>"

    for text in (drawing, escaped):
        assert texts(text.encode()) == {"comment": {"prompt": graph, "workflow": {"nodes": []}}}


def test_a_drawing_of_unclosed_metadata_is_refused_soon() -> None:
    with pytest.raises(Refused, match="shows no graph"):
        embedded(b"<svg>" + b"<metadata>" * 1_000_000, name="p")


def test_the_header_of_an_openexr_picture_is_read(graph: dict[str, Any], prompt: str) -> None:
    def attribute(name: str, kind: str, value: bytes) -> bytes:
        return f"{name}\0{kind}\0".encode() + len(value).to_bytes(4, "little") + value

    head = b"\x76\x2f\x31\x01\x02\0\0\0" + attribute("lines", "box2i", b"\0" * 16)

    assert texts(head + attribute("prompt", "string", prompt.encode()) + b"\0rest") == {"prompt": graph}
