"""Strict JSON: what lenient parsers change without a word is named."""

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from comfyfarm.errors import WorkflowError
from comfyfarm.workflow.findings import Refused
from comfyfarm.workflow.strict import LIMIT_BYTES, MAX_DEPTH, parse, strict_json

TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=20,
)


def refusal(data: bytes) -> Refused:
    with pytest.raises(Refused) as caught:
        strict_json(data, name="f.json")
    return caught.value


@pytest.mark.parametrize(
    ("data", "code", "words"),
    [
        (b'{"1":{"inputs":{"a":NaN}}}', "non_finite", "$.1.inputs.a"),
        (b'{"a":[0,Infinity]}', "non_finite", "$.a[1]"),
        (b'{"a":-Infinity}', "non_finite", "$.a"),
        (b'{"a":1e999}', "non_finite", "$.a"),
        (b'{"1":1,"1":2}', "duplicate_key", "'1' occurs twice"),
        (b'{"seed":' + b"9" * 5000 + b"}", "int_too_long", "5000 digits"),
        (b'{"text":"\\ud800"}', "lone_surrogate", "$.text"),
        (b'{"\\udfff":1}', "lone_surrogate", "$.?"),
        (b'{"text":["a\\u0000b"]}', "nul_character", "$.text[0]"),
        (b'{"a\\u0000":1}', "nul_character", "$.a\\0"),
        (b'{"a":1,}', "bad_json", "line 1, column 8"),
        (b'{"a":1 // c\n}', "bad_json", "line 1"),
        (b"", "bad_json", "line 1"),
        ('{"t":"café"}'.encode("latin-1"), "not_utf8", "offset 9"),
        ('{"a":1}'.encode("utf-16"), "not_utf8", "UTF-16"),
        (('{"a":' * 10_000 + "1" + "}" * 10_000).encode(), "too_deep", str(MAX_DEPTH)),
        (b"[" * 100_000, "too_deep", str(MAX_DEPTH)),
    ],
)
def test_a_flaw_has_its_code_and_its_place(data: bytes, code: str, words: str) -> None:
    refused = refusal(data)

    assert [finding.code for finding in refused.findings] == [code]
    assert words in str(refused)
    assert str(refused).startswith("f.json: ")
    assert isinstance(refused, WorkflowError)


def test_all_flaws_are_told_at_once() -> None:
    refused = refusal(b'{"a":NaN,"b":{"c":1,"c":2},"d":["\\ud800"]}')

    assert [finding.code for finding in refused.findings] == ["non_finite", "duplicate_key", "lone_surrogate"]


def test_a_file_that_no_server_takes_is_not_parsed() -> None:
    refused = refusal(b'"' + b"x" * LIMIT_BYTES + b'"')

    assert refused.findings[0].code == "too_large"


def test_brackets_in_texts_are_no_nesting() -> None:
    text = "[{" * 500 + '\\"' + "["

    assert strict_json(json.dumps({"t": text}).encode(), name="f") == {"t": text}


def test_a_byte_order_mark_is_no_error() -> None:
    assert strict_json(b'\xef\xbb\xbf{"a":1}', name="f") == {"a": 1}


def test_a_pair_of_surrogates_is_one_character() -> None:
    assert strict_json(b'"\\ud83d\\ude00"', name="f") == "😀"


def test_big_seeds_stay_exact() -> None:
    assert strict_json(b"[18446744073709551615]", name="f") == [18446744073709551615]


@given(JSON)
def test_whatever_is_json_reads_as_json_does(value: Any) -> None:
    assert strict_json(json.dumps(value).encode(), name="f") == value


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    try:
        value = strict_json(data, name="f")
    except WorkflowError:
        return
    assert not isinstance(value, float) or math.isfinite(value)


@given(st.text(alphabet='[]{}",:\\1aeNI \n', max_size=300))
def test_any_near_json_is_read_or_refused(text: str) -> None:
    try:
        value = strict_json(text.encode(), name="f")
    except WorkflowError:
        return
    assert value == json.loads(text)


@pytest.mark.parametrize(
    ("data", "mended"),
    [
        (b'{"a":1,"a":[2],"a":3}', {"a": 3}),
        (b'{"a":1,"a":{"b":NaN,"c":4}}', {"a": {"b": None, "c": 4}}),
        (b'{"a":[1e999,-Infinity,5]}', {"a": [None, None, 5]}),
        (b'["x\\ud800","\\udfff\\u0000"]', ["x\ufffd", "\ufffd\ufffd"]),
        (b'{"\\ud800":1}', {"\ufffd": 1}),
        (b"[" + b"9" * 401 + b",1]", [None, 1]),
    ],
)
def test_what_has_flaws_is_mended_so_that_the_rest_can_be_read(data: bytes, mended: Any) -> None:
    tree, flaws = parse(data, name="f")

    assert flaws
    assert tree == mended
    assert json.loads(json.dumps(tree, allow_nan=False)) == mended


def test_a_long_key_is_cut_in_messages() -> None:
    assert len(str(refusal(b'{"' + b"k" * 100_000 + b'":NaN}'))) < 500


def test_many_flaws_are_told_in_time() -> None:
    _, flaws = parse(b"[" + b"NaN," * 50_000 + b"1]", name="f")

    assert len(flaws) == 50_000


def test_nesting_at_the_limit_is_read_with_flaws_in_it() -> None:
    data = b"[" * MAX_DEPTH + b"NaN" + b"]" * MAX_DEPTH

    assert [flaw.code for flaw in parse(data, name="f")[1]] == ["non_finite"]
    assert refusal(b"[" + data + b"]").findings[0].code == "too_deep"
