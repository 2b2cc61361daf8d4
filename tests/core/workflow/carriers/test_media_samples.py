"""Films and sounds as PyAV wrote them: row B10 of the tricky cases, with how they are cut and damaged."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from comfyfarm.workflow.carriers.embedded import embedded
from comfyfarm.workflow.findings import Refused
from comfyfarm.workflow.reading.reader import read

Sample = Callable[[str], bytes]
FILMS = ["tags.mp4", "tags.mov", "faststart.mp4", "fragmented.mp4", "tags.webm", "live.webm", "tags.mkv"]
SOUNDS = ["tags.flac.gz", "tags.opus", "tags.ogg", "vorbis.ogg", "tags.mp3", "id3v23.mp3", "pages.opus.gz"]
MAGICS = [
    b"\x89PNG\r\n\x1a\n", b"RIFF\xff\0\0\0WEBPEXIF", b"\xff\xd8\xff", b"\x76\x2f\x31\x01",
    b"\x1a\x45\xdf\xa3", b"fLaC", b"OggS", b"ID3\3\0", b"ID3\4\0", b"glTF\2\0\0\0", b"\0\0\0\0\0\0\0\0{",
    b"<svg>", b"\0\0\0\x08ftyp\0\0\0\x60moov\0\0\0\x50meta",
]  # fmt: skip


@pytest.mark.parametrize("name", [*FILMS, *SOUNDS])
def test_both_graphs_are_found(sample: Sample, graph: dict[str, Any], name: str) -> None:
    found = embedded(sample(name), name=name)

    assert found is not None
    assert found.findings == ()
    texts = dict(found.texts)
    assert json.loads(texts["prompt"]) == graph
    assert [node["type"] for node in json.loads(texts["workflow"])["nodes"]] == ["EmptyImage", "SaveImage"]


@pytest.mark.parametrize("name", ["comment.mp4", *FILMS, *SOUNDS])
def test_each_sample_is_read_as_the_graph_that_ran(sample: Sample, graph: dict[str, Any], name: str) -> None:
    found = read(sample(name), name=name)

    assert found.format == "api"
    assert found.workflow.to_api() == graph
    assert {finding.code for finding in found.findings} <= {"embedded", "wrapped"}


def test_a_comment_with_both_graphs_is_given_as_it_is(sample: Sample, graph: dict[str, Any]) -> None:
    found = embedded(sample("comment.mp4"), name="f")

    assert found is not None
    assert [key for key, _ in found.texts] == ["comment"]
    assert json.loads(json.loads(found.texts[0][1])["prompt"]) == graph


def test_a_film_without_tags_is_refused(sample: Sample) -> None:
    with pytest.raises(Refused, match="an MP4 or QuickTime film without a graph") as caught:
        embedded(sample("bare.mp4"), name="f")
    assert caught.value.findings[0].code == "not_comfy_metadata"


@pytest.mark.parametrize("name", ["faststart.mp4", "live.webm", "tags.opus", "tags.ogg", "vorbis.ogg"])
def test_a_cut_file_still_shows_its_graphs_with_a_warning(sample: Sample, name: str) -> None:
    found = embedded(sample(name)[:-30], name=name)

    assert found is not None
    assert {key for key, _ in found.texts} == {"prompt", "workflow"}
    assert [(finding.code, finding.severity) for finding in found.findings] == [("truncated", "warning")]


def test_a_cut_segment_of_known_size_is_noticed(sample: Sample) -> None:
    data = sample("tags.webm")
    found = embedded(data[: data.index(b"\x1f\x43\xb6\x75")], name="f")

    assert found is not None
    assert [finding.code for finding in found.findings] == ["truncated"]


def test_comments_cut_in_the_middle_show_those_before(sample: Sample, prompt: str) -> None:
    data = sample("pages.opus.gz")
    found = embedded(data[:66_500], name="f")

    assert found is not None
    assert found.texts == (("prompt", prompt.encode()),)
    assert [finding.code for finding in found.findings] == ["truncated"]


def test_a_film_whose_tags_come_last_is_refused_when_cut(sample: Sample) -> None:
    data = sample("tags.mp4")
    with pytest.raises(Refused, match="shows no graph up to there"):
        embedded(data[: data.index(b"moov") - 4], name="f")


def frame(kind: bytes, body: bytes) -> bytes:
    return kind + len(body).to_bytes(4, "big") + b"\0\0" + body


def id3(frames: bytes, *, flags: int = 0) -> bytes:
    size = len(frames)
    return b"ID3\x03\0" + bytes([flags, *(size >> 7 * place & 0x7F for place in (3, 2, 1, 0))]) + frames


def test_wide_texts_of_id3_are_read(graph: dict[str, Any], prompt: str) -> None:
    body = b"\x01" + "prompt".encode("utf-16") + b"\0\0" + prompt.encode("utf-16")
    found = embedded(id3(frame(b"TXXX", body) + b"\0" * 20) + b"\xff\xfb", name="f")

    assert found is not None
    assert json.loads(dict(found.texts)["prompt"]) == graph


def test_a_tag_without_ff_zero_pairs_is_read(prompt: str) -> None:
    body = b"\0prompt\0" + prompt.encode()
    frames = frame(b"TIT2", b"\x00a\xffb") + frame(b"TXXX", body)
    found = embedded(id3(frames.replace(b"\xff", b"\xff\0"), flags=0x80), name="f")

    assert found is not None
    assert found.texts == (("prompt", prompt.encode()),)


def test_tags_before_a_flac_file_are_left_behind(sample: Sample, prompt: str) -> None:
    found = embedded(id3(frame(b"TIT2", b"\0a")) + sample("tags.flac.gz"), name="f")

    assert found is not None
    assert dict(found.texts)["prompt"] == prompt.encode()


def test_user_data_without_names_of_keys_is_read(prompt: str) -> None:
    def box(kind: bytes, *parts: bytes) -> bytes:
        body = b"".join(parts)
        return (len(body) + 8).to_bytes(4, "big") + kind + body

    data = box(b"data", b"\0\0\0\1\0\0\0\0", prompt.encode())
    named = box(b"----", box(b"mean", b"\0" * 4, b"com"), box(b"name", b"\0" * 4, b"prompt"), data)
    handler = box(b"hdlr", b"\0" * 24)
    lists = {
        "prompt": box(b"ilst", named),
        "comment": box(b"ilst", box(b"\xa9cmt", data)),
    }
    for key, items in lists.items():
        for meta in (box(b"meta", b"\0" * 4, handler, items), box(b"meta", handler, items)):
            found = embedded(box(b"ftyp", b"isom") + box(b"moov", box(b"udta", meta)), name="f")
            assert found is not None
            assert found.texts == ((key, prompt.encode()),)
    short = box(b"\xa9cmt", len(prompt).to_bytes(2, "big"), b"\0\0", prompt.encode())
    found = embedded(box(b"ftyp", b"qt  ") + box(b"moov", box(b"udta", short)), name="f")
    assert found is not None
    assert found.texts == (("comment", prompt.encode()),)


@pytest.mark.parametrize(
    "data",
    [
        b"\x1a\x45\xdf\xa3" + b"\xec\x80" * 3_000_000,
        b"\0\0\0\x08free" * 3_000_000,
        b"\x89PNG\r\n\x1a\n" + b"\0\0\0\0abcd\0\0\0\0" * 1_000_000,
    ],
    ids=["matroska", "mp4", "png"],
)
def test_a_file_of_empty_pieces_ends_in_time(data: bytes) -> None:
    with pytest.raises(Refused):
        embedded(data, name="f")


@pytest.mark.parametrize("name", [*FILMS, *SOUNDS[:-1]])
@given(data=st.data())
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_damaged_file_is_read_or_refused(sample: Sample, name: str, data: st.DataObject) -> None:
    whole = bytearray(sample(name))
    for place in data.draw(st.lists(st.integers(0, len(whole) - 1), max_size=4)):
        whole[place] = data.draw(st.sampled_from([0, 1, 0x7F, 0x80, 0xFF, whole[place] ^ 1]))
    cut = data.draw(st.integers(0, len(whole)) | st.just(len(whole)))
    try:
        found = read(bytes(whole[:cut]), name=name)
    except Refused:
        return
    assert found.nodes


@given(st.binary(max_size=60), st.sampled_from(MAGICS))
@example(b"", b"RIFF\xff\0\0\0WEBPEXIF")
def test_whatever_follows_the_first_bytes_is_read_or_refused(data: bytes, magic: bytes) -> None:
    try:
        found = embedded(magic + data, name="f")
    except Refused:
        return
    assert found is None or found.texts
