"""Reading workflow files: rows A of the tricky cases, and the shape of API graphs."""

import json
import pickle
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from comfyfarm.errors import WorkflowError
from comfyfarm.workflow.findings import Refused
from comfyfarm.workflow.graph import Workflow
from comfyfarm.workflow.node import Link
from comfyfarm.workflow.reading.reader import read, read_workflow
from comfyfarm.workflow.strict import LIMIT_BYTES

Make = Callable[[dict[str, Any]], Workflow]


def refusal(data: bytes) -> Refused:
    with pytest.raises(Refused) as caught:
        read_workflow(data, name="w.json")
    return caught.value


def codes(graph: Any) -> list[str]:
    return [finding.code for finding in read(json.dumps(graph).encode(), name="w").findings]


def noticed(data: bytes) -> list[tuple[str, str]]:
    """Codes and severities, whether there is a graph or not."""
    try:
        findings = read(data, name="w.json").findings
    except Refused as exc:
        findings = exc.findings
    return [(finding.code, finding.severity) for finding in findings]


def node(inputs: bytes) -> bytes:
    return b'{"1":{"class_type":"EmptyImage","inputs":{' + inputs + b"}}}"


def png(**texts: str) -> bytes:
    whole = b"\x89PNG\r\n\x1a\n"
    for kind, body in [(b"IHDR", b""), *((b"tEXt", f"{k}\0{v}".encode()) for k, v in texts.items())]:
        whole += len(body).to_bytes(4, "big") + kind + body + b"crc0"
    return whole + b"\0\0\0\0IEND"


@pytest.mark.parametrize(
    ("data", "code", "severity"),
    [
        pytest.param(b"\xef\xbb\xbf" + node(b""), "bom", "warning", id="A1"),
        pytest.param(node(b"").decode().encode("utf-16"), "not_utf8", "error", id="A2"),
        pytest.param(b"\xfe\xff" + node(b"").decode().encode("utf-16-be"), "not_utf8", "error", id="A2-be"),
        pytest.param(node(b'"text":"caf\xe9"'), "not_utf8", "error", id="A3"),
        pytest.param(node(b'"a":NaN'), "non_finite", "error", id="A4-nan"),
        pytest.param(node(b'"a":-Infinity'), "non_finite", "error", id="A4-infinity"),
        pytest.param(node(b'"a":1e999'), "non_finite", "error", id="A4-1e999"),
        pytest.param(node(b"")[:-1] + b"," + node(b"")[1:], "duplicate_key", "error", id="A5"),
        pytest.param(b'{"a":' * 10_000 + b"1" + b"}" * 10_000, "too_deep", "error", id="A6-objects"),
        pytest.param(b"[" * 100_000, "too_deep", "error", id="A6-lists"),
        pytest.param(node(b'"seed":' + b"9" * 5000), "int_too_long", "error", id="A7"),
        pytest.param(node(b'"text":"\\ud800"'), "lone_surrogate", "error", id="A8"),
        pytest.param(node(b'"a":1,'), "bad_json", "error", id="A9-comma"),
        pytest.param(node(b'"a":1 // seed\n'), "bad_json", "error", id="A9-comment"),
        pytest.param(b"", "not_a_workflow", "error", id="A10-empty"),
        pytest.param(b" \n", "not_a_workflow", "error", id="A10-blank"),
        pytest.param(b"\xef\xbb\xbf", "not_a_workflow", "error", id="A10-bom"),
        pytest.param(b"null", "not_a_workflow", "error", id="A10-null"),
        pytest.param(b"[]", "not_a_workflow", "error", id="A10-list"),
        pytest.param(b'"text"', "not_a_workflow", "error", id="A10-text"),
        pytest.param(b"3", "not_a_workflow", "error", id="A10-number"),
        pytest.param(png(prompt=node(b"").decode()), "embedded", "info", id="A12"),
        pytest.param(png(parameters="a cat\nSteps: 20"), "not_comfy_metadata", "error", id="B11"),
        pytest.param(png(), "not_comfy_metadata", "error", id="B11-nothing"),
    ],
)
def test_each_flaw_of_a_file_has_its_code(data: bytes, code: str, severity: str) -> None:
    assert noticed(data)[-1] == (code, severity)


@pytest.mark.parametrize(
    ("size", "severity"),
    [
        pytest.param(LIMIT_BYTES + 1, "error", id="A11-file"),
        pytest.param(50_000_000, "warning", id="A11-value"),
    ],
)
def test_what_is_too_large_is_told_and_never_printed(size: int, severity: str) -> None:
    assert noticed(node(b'"image":"' + b"A" * size + b'"')) == [("too_large", severity)]


@pytest.mark.parametrize("data", [b"null", b"[]", b'"text"', b"3", b""])
def test_what_is_no_workflow_is_told_how_to_get_one(data: bytes) -> None:
    assert "Export (API)" in str(refusal(data))


def test_a_long_text_is_never_printed() -> None:
    reading = read(node(b'"image":"' + b"A" * 2_000_000 + b'"'), name="w")
    (found,) = reading.findings

    assert (found.code, found.node, found.field) == ("too_large", "1", "image")
    assert "2000000 characters" in found.message
    assert "AAAA" not in str(found)


def test_long_keys_and_ids_are_cut_in_messages() -> None:
    long = "k" * 100_000
    data = json.dumps({"1": {"class_type": "A", "inputs": {long: [1, 0]}}, long: 1, "9" * 900: {}})
    refused = refusal(data.encode()[:-1] + b',"' + long.encode() + b'":NaN}')

    assert {"numeric_link_id", "stray_key", "node_id", "non_finite"} <= {f.code for f in refused.findings}
    assert len(str(refused)) < 5000


def test_errors_stand_beside_what_could_be_read(good: dict[str, Any]) -> None:
    data = json.dumps({**good, "3": {"class_type": None}, "4": {"class_type": "A", "inputs": []}})
    reading = read(data.replace("64", "NaN").encode(), name="w")

    assert [item.id for item in reading.nodes] == ["1", "2", "4"]
    assert [item.id for item in reading.workflow.nodes] == ["1", "2", "4"]
    assert reading.nodes[0].inputs["width"] is None
    assert {f.code for f in reading.findings} == {"non_finite", "class_type", "inputs"}


def test_what_cannot_be_kept_is_mended_for_the_report() -> None:
    reading = read(node(b'"a":"x\\ud800y\\u0000z","b":{"c":1,"c":[2]},"d":' + b"9" * 5000), name="w")

    assert reading.nodes[0].inputs == {"a": "x\ufffdy\ufffdz", "b": {"c": (2,)}, "d": None}
    assert [(f.code, f.field) for f in reading.findings] == [
        ("lone_surrogate", "a"),
        ("duplicate_key", "b"),
        ("int_too_long", "d"),
    ]


@pytest.mark.parametrize("data", [b"{}", b'{"prompt":{}}'])
def test_a_graph_without_nodes_is_refused(data: bytes) -> None:
    assert refusal(data).findings[-1].code == "empty_graph"


@pytest.mark.parametrize(
    "tree", [{str(n): n for n in range(5000)}, {f"t{n}": n for n in range(5000)}, {"v": 1}], ids=range(3)
)
def test_json_without_anything_like_a_node_is_one_error(tree: dict[str, int]) -> None:
    assert noticed(json.dumps(tree).encode()) == [("not_a_workflow", "error")]


def test_many_stray_keys_are_counted(good: dict[str, Any]) -> None:
    found = read(json.dumps({**good, **{f"t{n}": n for n in range(1000)}}).encode(), name="w").findings

    assert [one.code for one in found] == ["stray_key"] * 21
    assert found[-1].message.startswith("980 more keys")


def test_a_byte_order_mark_is_accepted_with_a_warning(good: dict[str, Any]) -> None:
    found = read(b"\xef\xbb\xbf" + json.dumps(good).encode(), name="w")

    assert [(f.code, f.severity) for f in found.findings] == [("bom", "warning")]
    assert found.workflow.to_api() == good


def test_keys_that_are_no_nodes_are_dropped_and_told(good: dict[str, Any], make: Make) -> None:
    strays = {"_meta": {"title": "x"}, "version": 0.4, "_comment": "hello"}

    assert make({**good, **strays}) == make(good)  # row B7
    assert codes({**good, **strays}) == ["stray_key"] * 3


@pytest.mark.parametrize(
    ("node", "field"),
    [
        ({"inputs": {}}, "class_type"),
        ({"class_type": None, "inputs": {}}, "class_type"),
        ({"class_type": ["a"], "inputs": {}}, "class_type"),
        ({"class_type": "", "inputs": {}}, "class_type"),
        ({"class_type": "SaveImage", "inputs": None}, "inputs"),
        ({"class_type": "SaveImage", "inputs": []}, "inputs"),
        (5, None),
        ({}, "class_type"),
    ],
)
def test_a_node_of_wrong_shape_is_named(good: dict[str, Any], node: Any, field: str | None) -> None:
    refused = refusal(json.dumps({**good, "7": node}).encode())

    assert [(f.node, f.field) for f in refused.findings] == [("7", field)]
    assert "w.json: node 7" in str(refused)


def test_all_wrong_nodes_are_named_at_once(good: dict[str, Any]) -> None:
    refused = refusal(json.dumps({**good, "7": {"inputs": {}}, "8": {"inputs": 3}}).encode())

    assert [finding.node for finding in refused.findings] == ["7", "8", "8"]


def test_missing_inputs_are_none(make: Make) -> None:
    assert make({"1": {"class_type": "EmptyImage"}}).node("1").inputs == {}


def test_a_numeric_link_is_read_as_text_with_a_warning(good: dict[str, Any], make: Make) -> None:
    good["2"]["inputs"]["images"] = [1, 0]

    assert make(good).node("2").inputs["images"] == Link("1", 0)  # type: ignore[arg-type]
    assert codes(good) == ["numeric_link_id"]


def test_what_an_executed_prompt_leaves_behind_is_dropped() -> None:
    data = b'{"1":{"class_type":"EmptyImage","inputs":{},"is_changed":[NaN]}}'

    assert read_workflow(data, name="w").to_api() == {"1": {"class_type": "EmptyImage", "inputs": {}}}


def test_ids_are_opaque(good: dict[str, Any], make: Make) -> None:
    for odd in ("10:3", "538_604", "model_loader", "10.3", "-1"):
        assert make({odd: good["1"]}).node(odd).class_type == "EmptyImage"


def test_a_refusal_survives_pickling() -> None:
    refused = refusal(b'{"1":{}}')

    assert str(pickle.loads(pickle.dumps(refused))) == str(refused)  # noqa: S301


@given(st.binary(max_size=100))
def test_no_bytes_end_in_another_error(data: bytes) -> None:
    with suppress(WorkflowError):
        assert read_workflow(data, name="w").nodes


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=5)
    | st.sampled_from(["1", "2"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["1", "class_type", "inputs", "prompt", "nodes", "_meta"]), inner, max_size=4
        )
    ),
    max_leaves=30,
)


@given(VALUES)
def test_no_json_ends_in_another_error(value: Any) -> None:
    try:
        workflow = read_workflow(json.dumps(value).encode(), name="w")
    except WorkflowError:
        return
    assert workflow.nodes
    assert read_workflow(json.dumps(workflow.to_api()).encode(), name="w") == workflow
