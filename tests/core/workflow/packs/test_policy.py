"""What a farm lets in."""

from typing import Any

import pytest
from pydantic import ValidationError

from comfyfarm.workflow.findings import Severity
from comfyfarm.workflow.packs.policy import Policy, pickle_findings, policy_findings
from comfyfarm.workflow.packs.resolve import resolve_packs
from comfyfarm.workflow.schema import NodeSchema

SHA, OTHER = "a" * 64, "b" * 64


def judged(packs: Any, schema: NodeSchema, *nodes: Any, **policy: Any) -> list[tuple[str, str | None]]:
    findings = policy_findings(nodes, resolve_packs(nodes, schema), policy=Policy(**policy))
    assert all(finding.severity is Severity.ERROR for finding in findings)
    return [(finding.code, finding.node) for finding in findings]


def test_without_a_policy_everything_is_let_in(packs: Any, schema: NodeSchema) -> None:
    assert judged(packs, schema, packs.node("Anything"), packs.node("KSampler")) == []


@pytest.mark.parametrize(
    ("allowed", "refused"),
    [
        (("KSampler", "Show Text [Crystools]"), []),
        (("KSampler", "Show Text*"), []),
        (("KSampler", "Show Text [Crystool?]"), []),
        (("KSampler", "show text*"), [("class_not_allowed", "2")]),
        (("Show Text C",), [("class_not_allowed", "1"), ("class_not_allowed", "2")]),
        ((), [("class_not_allowed", "1"), ("class_not_allowed", "2")]),
    ],
)
def test_classes_are_let_in_by_name_or_pattern(
    packs: Any, schema: NodeSchema, allowed: tuple[str, ...], refused: list[tuple[str, str]]
) -> None:
    nodes = (packs.node("KSampler", id="1"), packs.node("Show Text [Crystools]", id="2"))

    assert judged(packs, schema, *nodes, allow_classes=allowed) == refused


@pytest.mark.parametrize(
    "entry",
    [
        "ComfyUI-KJNodes",
        "comfyui-kjnodes",
        "kijai/*",
        "kijai/ComfyUI-KJNodes",
        "https://github.com/kijai/ComfyUI-KJNodes.git",
        "*",
    ],
)
def test_packs_are_let_in_by_name_repository_or_address(packs: Any, schema: NodeSchema, entry: str) -> None:
    node = packs.node("ImageResizeKJ", aux="Kijai/ComfyUI-KJNodes")

    assert judged(packs, schema, node, allow_packs=(entry,)) == []


@pytest.mark.parametrize(
    "entry", ["ComfyUI-GGUF", "kijai", "other/ComfyUI-KJNodes", "https://github.com/other/ComfyUI-KJNodes"]
)
def test_other_packs_are_refused_by_their_first_node(packs: Any, schema: NodeSchema, entry: str) -> None:
    nodes = [packs.node("ImageResizeKJ", id=node_id, aux="kijai/ComfyUI-KJNodes") for node_id in ("4", "5")]

    assert judged(packs, schema, *nodes, allow_packs=(entry,)) == [("pack_not_allowed", "4")]


def test_comfyuis_own_nodes_are_of_no_pack(packs: Any, schema: NodeSchema) -> None:
    assert judged(packs, schema, packs.node("KSampler"), allow_packs=()) == []


def test_a_class_whose_pack_is_not_known_is_refused(packs: Any, schema: NodeSchema) -> None:
    assert judged(packs, schema, packs.node("Nowhere"), allow_packs=("*",)) == [("pack_not_allowed", "1")]


@pytest.mark.parametrize("class_type", ["Note", "PrimitiveNode", "SetNode", "workflow/Mine"])
def test_what_no_server_runs_is_not_judged(packs: Any, schema: NodeSchema, class_type: str) -> None:
    assert judged(packs, schema, packs.node(class_type), allow_classes=(), allow_packs=()) == []


def test_muted_nodes_are_not_judged(packs: Any, schema: NodeSchema) -> None:
    assert judged(packs, schema, packs.node("X", active=False), allow_classes=(), allow_packs=()) == []


@pytest.mark.parametrize("name", ["x.ckpt", "x.pt", "x.PTH", "a/x.bin", "x.pkl"])
def test_a_pickled_file_is_refused_unless_its_content_is_allowed(name: str) -> None:
    (finding,) = pickle_findings([(name, SHA)], policy=Policy(allow_pickle_sha256=()))

    assert (finding.code, finding.severity) == ("pickle_refused", Severity.ERROR)
    assert name in finding.message
    assert SHA in finding.remedy
    assert pickle_findings([(name, SHA)], policy=Policy(allow_pickle_sha256=(SHA,))) == ()
    assert len(pickle_findings([(name, SHA)], policy=Policy(allow_pickle_sha256=(OTHER,)))) == 1


def test_without_the_key_pickled_files_are_let_in() -> None:
    assert pickle_findings([("x.ckpt", SHA)], policy=Policy()) == ()


@pytest.mark.parametrize("name", ["x.safetensors", "x.gguf", "x.ckpt.safetensors", "x.onnx"])
def test_other_files_are_never_refused(name: str) -> None:
    assert pickle_findings([(name, SHA)], policy=Policy(allow_pickle_sha256=())) == ()


def test_a_hash_has_to_be_one() -> None:
    with pytest.raises(ValidationError):
        Policy(allow_pickle_sha256=("abc",))


def test_nodes_that_no_server_runs_need_no_leave(packs: Any, schema: NodeSchema) -> None:
    nodes = [packs.node(name) for name in ("Note", "SetNode", "Label (rgthree)")]

    assert judged(packs, schema, *nodes, allow_classes=()) == []
    assert judged(packs, schema, packs.node("Anything Everywhere"), allow_classes=()) != []


@pytest.mark.parametrize("entry", ["[]*?!-x]", "Show Text [Crystools]", "[[]a", "[!a]", "]", "[a-z]"])
def test_brackets_of_a_pattern_stand_for_themselves(packs: Any, schema: NodeSchema, entry: str) -> None:
    assert judged(packs, schema, packs.node(entry), allow_classes=(entry + "*",)) == []
    assert judged(packs, schema, packs.node("a"), allow_classes=(entry,)) == [("class_not_allowed", "1")]
