"""The rule for `embedding:` in prompts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from comfyfarm.workflow.references.embeddings import find_embeddings


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("embedding:EasyNegative", ["EasyNegative"]),
        ("(embedding:EasyNegative:1.2), cat", ["EasyNegative"]),
        ("((embedding:a.pt))", ["a.pt"]),
        ("cat, embedding:a, embedding:b,, dog", ["a", "b"]),
        ("one\nembedding:a\ntwo", ["a"]),
        ("embedding:sub/foo embedding:missing", ["sub/foo", "missing"]),
        ("embedding:sub\\foo", ["sub\\foo"]),
        ("embedding:a<lora:b:1>", ["a"]),
        ("embedding:a[cat]", ["a"]),
        ("embedding:v1:2", ["v1:2"]),
        (r"embedding:a\(b\)", ["a(b)"]),
        ("embedding:a embedding:a", ["a"]),
        ("catembedding:foo", []),
        ("a,embedding:foo", []),
        ("embedding: foo", []),
        ("Embedding:foo", []),
        ("", []),
    ],
)
def test_a_name_is_what_comfyui_would_look_for(text: str, names: list[str]) -> None:
    assert list(find_embeddings(text)) == names


@given(st.text(alphabet="embdings:()[]<>\\, \n.1a", max_size=80))
def test_no_name_has_what_ends_a_name(text: str) -> None:
    for name in find_embeddings(text):
        assert name
        assert not set(" \n<[") & set(name)
