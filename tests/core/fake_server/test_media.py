"""The files that save nodes write are true files of their kind, and differ with their digest."""

import io
import json
import struct
import wave
from collections.abc import Callable

import pytest
from PIL import Image, ImageSequence

from fake_server.comfy import media, streams

ONE, TWO = "1f" * 32, "2e" * 32
MAKERS: dict[str, tuple[Callable[[str], bytes], bytes]] = {
    "exr": (media.exr, b"\x76\x2f\x31\x01"),
    "glb": (media.glb, b"glTF\x02"),
    "ply": (media.point_cloud, b"ply\n"),
    "svg": (media.svg, b"<svg "),
    "flac": (streams.flac, b"fLaC"),
    "wav": (streams.wav, b"RIFF"),
    "mp3": (streams.mp3, b"ID3"),
    "opus": (streams.opus, b"OggS"),
    "mp4": (streams.mp4, b"\x00\x00\x00\x20ftypisom"),
    "webm": (streams.webm, b"\x1a\x45\xdf\xa3"),
}


@pytest.mark.parametrize("kind", MAKERS)
def test_files_begin_as_their_kind_does_and_differ_with_the_digest(kind: str) -> None:
    make, start = MAKERS[kind]

    assert make(ONE).startswith(start)
    assert make(ONE) == make(ONE)
    assert make(ONE) != make(TWO)


def test_a_png_has_its_size_its_texts_and_its_own_pixels() -> None:
    pictures = [media.png(digest, 24, 16, texts={"prompt": "{}"}) for digest in (ONE, TWO)]

    with Image.open(io.BytesIO(pictures[0])) as first, Image.open(io.BytesIO(pictures[1])) as second:
        assert first.size == (24, 16)
        assert first.info["prompt"] == "{}"
        assert first.tobytes() != second.tobytes()


def test_a_big_picture_is_scaled_down() -> None:
    with Image.open(io.BytesIO(media.png(ONE, 2048, 1024))) as image:
        assert image.size == (256, 128)


@pytest.mark.parametrize("kind", ["WEBP", "PNG"])
def test_an_animation_has_all_its_frames(kind: str) -> None:
    with Image.open(io.BytesIO(media.animation([ONE, TWO, "30" * 32], 16, 16, kind=kind))) as image:
        assert (image.format, len(list(ImageSequence.Iterator(image)))) == (kind, 3)


def test_a_wav_can_be_read() -> None:
    with wave.open(io.BytesIO(streams.wav(ONE))) as file:
        assert (file.getframerate(), file.getnframes(), file.getnchannels()) == (8000, 256, 1)


def test_a_glb_holds_its_document_and_its_triangle() -> None:
    content = media.glb(ONE)
    _, version, size = struct.unpack("<4sII", content[:12])
    length, kind = struct.unpack("<I4s", content[12:20])
    document = json.loads(content[20 : 20 + length])

    assert (version, size, kind) == (2, len(content), b"JSON")
    assert document["buffers"][0]["byteLength"] == len(content) - 20 - length - 8


def test_the_boxes_of_an_mp4_fill_the_file() -> None:
    content, at, kinds = streams.mp4(ONE), 0, []
    while at < len(content):
        size, kind = struct.unpack(">I4s", content[at : at + 8])
        kinds.append(kind)
        at += size

    assert (at, kinds) == (len(content), [b"ftyp", b"moov", b"mdat"])


def test_a_latent_is_a_safetensors_file() -> None:
    content = media.safetensors(ONE)
    head = json.loads(content[8 : 8 + struct.unpack("<Q", content[:8])[0]])

    assert head["latent_tensor"]["shape"] == [32]
    assert content.endswith(bytes.fromhex(ONE))
