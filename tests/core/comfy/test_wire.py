"""What ComfyUI sends, read leniently: any output key, any garbage."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from comfyfarm.comfy.wire import HistoryEntry, Message, OutputEntry, Phase, read_history, read_message

RECORDINGS = Path(__file__).parents[2] / "data" / "recordings"


def scenarios(topic: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(gzip.decompress((RECORDINGS / f"{topic}.json.gz").read_bytes()))
    return found


def histories(scenario: dict[str, Any]) -> list[HistoryEntry]:
    bodies = [each["body"].get("json") for each in scenario["http"] if each["path"].startswith("/history/")]
    return [read_history(entry) for body in bodies if body for entry in body.values()]


def entry(outputs: dict[str, Any]) -> HistoryEntry:
    return read_history({"outputs": outputs})


def file(name: str, **more: str) -> dict[str, str]:
    return {"filename": name, "subfolder": "", "type": "output", **more}


@pytest.mark.parametrize(
    "key", ["images", "gifs", "audio", "video", "files", "latents", "3d", "result", "a_images", "anything"]
)
def test_a_file_is_found_under_any_key(key: str) -> None:
    found = entry({"9": {key: [file("x_00001_.bin", subfolder="job/sub", type="temp")]}}).files()

    assert found == (
        OutputEntry(node="9", key=key, filename="x_00001_.bin", subfolder="job/sub", type="temp"),
    )


def test_what_is_left_out_of_a_file_has_a_default() -> None:
    bare = entry({"9": {"video": [{"filename": "v.mp4", "format": "video/h264-mp4", "frame_rate": 8}]}})
    assert bare.files() == (OutputEntry(node="9", key="video", filename="v.mp4"),)
    odd = entry({"9": {"images": [{"filename": "a.png", "subfolder": None, "type": None}]}})
    assert odd.files() == (OutputEntry(node="9", key="images", filename="a.png"),)


def test_a_file_outside_a_list_is_one_too() -> None:
    assert [one.filename for one in entry({"9": {"mesh": file("m.glb")}}).files()] == ["m.glb"]


def test_each_file_is_named_once_and_in_the_order_of_the_nodes() -> None:
    found = entry(
        {
            "9": {"images": [file("b.png"), file("a.png"), file("b.png")], "animated": [True]},
            "3": {"images": [file("b.png")]},
        }
    ).files()

    assert [(one.node, one.filename) for one in found] == [("9", "b.png"), ("9", "a.png"), ("3", "b.png")]


@pytest.mark.parametrize(
    "outputs",
    [
        {"9": None},
        {"9": []},
        {"9": {"images": None}},
        {"9": {"images": [None, True, 1, float("nan"), [], {}]}},
        {"9": {"images": [{"filename": ""}, {"filename": 7}, {"filename": None}]}},
        {"9": {"value": float("inf")}},
    ],
)
def test_what_is_no_file_is_passed_over(outputs: dict[str, Any]) -> None:
    assert entry(outputs).files() == ()
    assert entry(outputs).texts() == ()


@pytest.mark.parametrize(
    ("items", "expected"),
    [
        (["a fox"], "a fox"),
        (["a fox", "a tram"], "a fox\na tram"),
        (list("a fox"), "a fox"),
        ("a fox", "a fox"),
        ([], None),
        (["", "x"], "\nx"),
        ([1, "x", None], "x"),
    ],
)
def test_texts_are_put_together(items: Any, expected: str | None) -> None:
    texts = entry({"9": {"text": items}}).texts()

    assert [one.text for one in texts] == ([] if expected is None else [expected])


@pytest.mark.parametrize("scenario", scenarios("outputs"), ids=lambda one: str(one["scenario"]))
def test_recorded_outputs_are_all_found(scenario: dict[str, Any]) -> None:
    for found in histories(scenario):
        dicts = [item for _, _, item in found._items() if isinstance(item, dict) and "filename" in item]
        assert len(found.files()) == len({json.dumps(item, sort_keys=True) for item in dicts})
        assert found.succeeded or found.message("execution_error") is not None


@pytest.mark.parametrize(
    ("scenario", "key", "suffix"),
    [
        ("output_save_video", "images", ".mp4"),
        ("output_save_webm", "images", ".webm"),
        ("output_save_audio_flac", "audio", ".flac"),
        ("output_save_latent", "latents", ".latent"),
        ("output_save_text", "files", ".txt"),
        ("output_image_compare", "a_images", ".png"),
        ("output_custom_ui_gifs", "gifs", ""),
    ],
)
def test_recorded_kinds(scenario: str, key: str, suffix: str) -> None:
    found = next(one for one in scenarios("outputs") if one["scenario"] == scenario)
    files = [one for each in histories(found) for one in each.files() if one.key == key]

    assert files
    assert all(one.filename.endswith(suffix) for one in files)


def test_the_number_time_and_messages_of_a_recorded_run_are_read() -> None:
    found = next(one for one in scenarios("run") if one["scenario"] == "success_basic")
    (run, *_) = histories(found)

    assert run.number is not None
    assert run.status_str == "success"
    assert run.succeeded
    assert run.messages[0][0] == "execution_start"


def test_the_duration_is_that_of_the_servers_clock() -> None:
    messages = [
        ["execution_start", {"timestamp": 1_500}],
        ["x", {}],
        ["execution_success", {"timestamp": 4_000}],
    ]
    found = read_history({"status": {"messages": messages}})

    assert found.seconds == 2.5
    assert read_history({}).seconds is None


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
ENTRIES = st.fixed_dictionaries(
    {},
    optional={
        "prompt": JSON,
        "outputs": st.dictionaries(st.text(max_size=3), st.dictionaries(st.text(max_size=6), JSON)) | JSON,
        "status": st.fixed_dictionaries(
            {},
            optional={"status_str": JSON, "messages": st.lists(st.tuples(st.text(), JSON).map(list)) | JSON},
        )
        | JSON,
    },
)


@given(ENTRIES | JSON)
def test_any_history_entry_can_be_read(raw: Any) -> None:
    found = read_history(raw)

    assert isinstance(found.succeeded, bool)
    assert found.seconds is None or found.seconds >= 0
    found.files()
    found.texts()


@given(JSON)
def test_any_json_frame_is_a_message_or_nothing(raw: Any) -> None:
    found = read_message(json.dumps(raw))

    if isinstance(raw, dict) and isinstance(raw.get("type"), str):
        assert found is not None
        assert isinstance(found.ends_prompt, bool)
    else:
        assert found is None


@pytest.mark.parametrize(
    "frame",
    [
        b"\x00\x00\x00\x01\x00\x00\x00\x02PNG",
        "",
        "{",
        "[]",
        "null",
        '{"type": 7}',
        "[" * 100_000,
        '"\\ud83d"',
    ],
)
def test_what_is_no_message_is_none(frame: str | bytes) -> None:
    assert read_message(frame) is None


def test_a_message_says_whose_it_is_and_whether_it_is_the_end() -> None:
    last = '{"type": "executing", "data": {"node": null, "prompt_id": "j"}}'
    end = read_message(last)
    node = read_message('{"type": "executing", "data": {"node": "3"}}')
    odd = read_message('{"type": "status", "data": [1]}')

    assert end == Message(type="executing", data={"node": None, "prompt_id": "j"}, text=last)
    assert end.prompt_id == "j"
    assert end.ends_prompt
    assert node is not None
    assert not node.ends_prompt
    assert node.prompt_id is None
    assert odd == Message(type="status", text='{"type": "status", "data": [1]}')


def test_nan_passes() -> None:
    found = read_message('{"type": "executed", "data": {"output": {"value": [NaN, Infinity]}}}')

    assert found is not None
    assert found.type == "executed"


@pytest.mark.parametrize("phase", list(Phase))
def test_a_phase_is_live_or_over_or_unknown(phase: Phase) -> None:
    assert [phase.is_live, phase.is_over, phase is Phase.UNKNOWN].count(True) == 1
