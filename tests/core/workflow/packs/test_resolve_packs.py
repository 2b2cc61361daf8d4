"""Which pack a class comes from, in the order of what is trusted most."""

import json
import sys
import time
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from comfyfarm.lock.node_map import read_node_map
from comfyfarm.workflow.file_node import file_node
from comfyfarm.workflow.findings import Severity
from comfyfarm.workflow.packs.index import InstalledPack, PackIndex
from comfyfarm.workflow.packs.resolve import resolve_packs
from comfyfarm.workflow.reading.reader import read_workflow
from comfyfarm.workflow.schema import NodeSchema

A, B, C = "a" * 40, "b" * 40, "c" * 40
GITHUB = "https://github.com/"
KJ = GITHUB + "kijai/ComfyUI-KJNodes"


@pytest.fixture(scope="module")
def manager() -> PackIndex:
    """The real class map; `make` puts the wheel there, as data."""
    wheel = Path(sys.prefix) / "data" / "comfyui_manager-4.3-py3-none-any.whl"
    return read_node_map(wheel.read_bytes(), name=wheel.name)


def live(**modules: str) -> NodeSchema:
    """A live server's schema that has these classes from these modules."""
    classes = {name: {"input": {}, "python_module": module} for name, module in modules.items()}
    return NodeSchema.from_object_info(classes, name="server", live=True)


def codes(findings: Any) -> list[str]:
    return [finding.code for finding in findings]


def test_f20_several_versions_of_one_pack_are_one_pack_at_the_newest(schema: NodeSchema, packs: Any) -> None:
    vers = ["1.0.3", "1.1.0", "1.0.9", "1.0.10", "0.9.0", "v1.0.1"]
    nodes = [
        packs.node(
            "ImageResizeKJ", id=str(place), cnr="ComfyUI-KJNodes" if place % 2 else "comfyui-kjnodes", ver=ver
        )
        for place, ver in enumerate(vers)
    ]
    host = InstalledPack("ComfyUI-KJNodes", KJ, C, "comfyui-kjnodes", releases={"1.1.0": A, "1.0.10": B})
    found = resolve_packs(nodes, schema, index=packs.index(installed=(host,)))

    assert [(row.pack, row.url, row.commit, row.source) for row in found.packs] == [
        ("ComfyUI-KJNodes", KJ, A, "cnr_id")
    ]
    (warning,) = found.findings
    assert warning.code == "pack_versions"
    assert warning.severity is Severity.WARNING
    assert "1.1.0 is taken" in warning.message
    for ver in vers:
        assert ver.removeprefix("v") in warning.message


def test_f20_ids_are_compared_in_lower_case_and_over_classes(schema: NodeSchema, packs: Any) -> None:
    nodes = [
        packs.node("UnetLoaderGGUF", id="1", cnr="ComfyUI-GGUF", ver=A),
        packs.node("CLIPLoaderGGUF", id="2", cnr="comfyui-gguf", ver=A),
    ]
    found = resolve_packs(nodes, schema, index=packs.index(ids={"comfyui-gguf": "city96/ComfyUI-GGUF"}))

    assert {row.url for row in found.packs} == {GITHUB + "city96/ComfyUI-GGUF"}
    assert {row.commit for row in found.packs} == {A}
    assert found.findings == ()


@pytest.mark.parametrize(
    ("ver", "commit"),
    [
        (A, A),
        ("1.2.0", B),
        ("v1.2.0", B),
        ("9.9.9", None),
        ("cccccc", C),
        ("dddddd", None),
        ("nightly", C),
        ("unknown", C),
        (None, C),
    ],
)
def test_f21_a_version_leads_to_a_commit_where_a_checkout_tells(
    schema: NodeSchema, packs: Any, ver: str | None, commit: str | None
) -> None:
    host = InstalledPack("kj", KJ, C, releases={"1.2.0": B}, history=(C, B))
    nodes = [packs.node("ImageResizeKJ", aux="kijai/comfyui-kjnodes", ver=ver)]
    found = resolve_packs(nodes, schema, index=packs.index(installed=(host,)))

    assert [row.commit for row in found.packs] == [commit]
    assert codes(found.findings) == ([] if commit else ["pack_not_pinned"])


@pytest.mark.parametrize("ver", ["1.2.0", "abcdef1", "nightly", "unknown", None])
def test_f21_without_a_checkout_the_report_says_what_is_missing(
    schema: NodeSchema, packs: Any, ver: str | None
) -> None:
    found = resolve_packs([packs.node("ImageResizeKJ", aux="kijai/ComfyUI-KJNodes", ver=ver)], schema)

    assert [(row.url, row.commit, row.source) for row in found.packs] == [(KJ, None, "aux_id")]
    assert codes(found.findings) == ["pack_not_pinned"]
    assert "--custom-nodes" in found.findings[0].remedy
    assert f'"ImageResizeKJ" = "{KJ}@<commit>"' in found.findings[0].remedy


def test_f22_a_class_in_several_packs_is_an_error_until_one_is_chosen(
    schema: NodeSchema, packs: Any, manager: PackIndex
) -> None:
    nodes = [packs.node("PulidFluxModelLoader", id="7")]
    found = resolve_packs(nodes, schema, index=manager)

    (finding,) = found.findings
    assert (finding.code, finding.severity, finding.node) == ("ambiguous_pack", Severity.ERROR, "7")
    assert "3 node packs" in finding.message
    assert [row.url for row in found.packs] == [None]

    choice = {"PulidFluxModelLoader": f"{GITHUB}balazik/ComfyUI-PuLID-Flux@{A}"}
    chosen = resolve_packs(nodes, schema, index=manager, choices=choice)
    assert chosen.findings == ()
    assert chosen.packs[0].model_dump() == {
        "class_type": "PulidFluxModelLoader",
        "pack": "ComfyUI-PuLID-Flux",
        "url": GITHUB + "balazik/ComfyUI-PuLID-Flux",
        "commit": A,
        "source": "choice",
    }


@pytest.mark.parametrize(("class_type", "claims"), [("ShowText", 7), ("PreViewVideo", 16)])
def test_f22_all_claims_are_counted_and_some_are_named(
    schema: NodeSchema, packs: Any, manager: PackIndex, class_type: str, claims: int
) -> None:
    found = resolve_packs([packs.node(class_type)], schema, index=manager)

    assert codes(found.findings) == ["ambiguous_pack"]
    assert f"{claims} node packs" in found.findings[0].message


def test_f22_an_id_decides_between_packs(schema: NodeSchema, packs: Any, manager: PackIndex) -> None:
    nodes = [packs.node("PulidFluxModelLoader", aux="lldacing/ComfyUI_PuLID_Flux_ll", ver=A)]
    found = resolve_packs(nodes, schema, index=manager)

    assert [(row.url, row.source) for row in found.packs] == [
        (GITHUB + "lldacing/ComfyUI_PuLID_Flux_ll", "aux_id")
    ]
    assert found.findings == ()


def test_f22_classes_of_the_same_file_decide_between_packs(schema: NodeSchema, packs: Any) -> None:
    index = packs.index({"a/one": ("Twice", "OnlyOne"), "b/two": ("Twice", "OnlyTwo")})
    both = [packs.node("Twice", id="1"), packs.node("OnlyTwo", id="2")]
    found = resolve_packs(both, schema, index=index)

    assert [(row.url, row.source) for row in found.packs] == [
        (GITHUB + "b/two", "siblings"),
        (GITHUB + "b/two", "node_map"),
    ]
    assert "ambiguous_pack" not in codes(found.findings)
    divided = resolve_packs([*both, packs.node("OnlyOne", id="3")], schema, index=index)
    assert "ambiguous_pack" in codes(divided.findings)


def test_f22_a_class_of_muted_nodes_alone_stops_nothing(schema: NodeSchema, packs: Any) -> None:
    index = packs.index({"a/one": ("Twice",), "b/two": ("Twice",)})
    found = resolve_packs([packs.node("Twice", active=False)], schema, index=index)

    assert [(f.code, f.severity) for f in found.findings] == [("ambiguous_pack", Severity.WARNING)]
    assert found.needed == ()


@pytest.mark.parametrize(
    "class_type", ["PrimitiveNode", "Reroute", "Note", "MarkdownNote", "KSampler", "SaveImageWebsocket"]
)
def test_f23_the_editors_and_comfyuis_own_types_come_first(
    schema: NodeSchema, packs: Any, manager: PackIndex, class_type: str
) -> None:
    index = packs.index({"807502278/ComfyUI-WJNodes": (class_type,)})

    assert resolve_packs([packs.node(class_type)], schema, index=index).packs == ()
    assert resolve_packs([packs.node(class_type)], schema, index=manager).packs == ()


def test_f22_the_pack_that_is_called_like_the_class_is_named_first(schema: NodeSchema, packs: Any) -> None:
    index = packs.index({"a/bundle": ("InstantIDLoader",), "b/ComfyUI_InstantID": ("InstantIDLoader",)})
    (finding,) = resolve_packs([packs.node("InstantIDLoader")], schema, index=index).findings

    assert finding.remedy.endswith(f'"InstantIDLoader" = "{GITHUB}b/ComfyUI_InstantID"')


def test_what_the_editor_resolves_by_itself_is_placed_and_not_needed(schema: NodeSchema, packs: Any) -> None:
    nodes = [packs.node("Label (x)", id="1"), packs.node("Loader (x)", id="2", aux="a/one", ver=A)]
    found = resolve_packs(nodes, schema, run={"Loader (x)"})

    assert [row.class_type for row in found.packs] == ["Label (x)", "Loader (x)"]
    assert [row.class_type for row in found.needed] == ["Loader (x)"]
    assert [(f.code, f.severity) for f in found.findings] == [("no_pack", Severity.INFO)]


def test_f23_no_class_of_comfyui_is_given_to_a_pack(
    schema: NodeSchema, packs: Any, manager: PackIndex
) -> None:
    names = json.loads(resources.files("comfyfarm.workflow").joinpath("object_info.json").read_bytes())
    found = resolve_packs([packs.node(name, id=name) for name in names], schema, index=manager)

    assert len(names) > 700
    assert found.packs == ()
    assert found.findings == ()


def test_a_node_that_says_comfy_core_is_of_no_pack(schema: NodeSchema, packs: Any) -> None:
    index = packs.index({"a/one": ("NewerCoreNode",)})

    assert (
        resolve_packs([packs.node("NewerCoreNode", cnr="Comfy-Core", ver="0.9.0")], schema, index=index).packs
        == ()
    )


@pytest.mark.parametrize(
    "class_type", ["6f1e7a0c-5a2f-4f0e-9d6a-0123456789ab", "workflow/Upscale", "workflow>Upscale"]
)
def test_subgraphs_and_group_nodes_are_of_no_pack(schema: NodeSchema, packs: Any, class_type: str) -> None:
    assert resolve_packs([packs.node(class_type)], schema).packs == ()


def test_a_live_server_tells_the_folder_of_a_class(packs: Any) -> None:
    host = InstalledPack("my-fork", GITHUB + "me/fork", A)
    index = packs.index({"a/one": ("Twice",), "b/two": ("Twice",)}, installed=(host,))
    found = resolve_packs([packs.node("Twice")], live(Twice="custom_nodes.my-fork"), index=index)

    assert [(row.url, row.commit, row.source) for row in found.packs] == [(GITHUB + "me/fork", A, "host")]
    assert found.findings == ()


def test_a_folder_that_is_called_like_an_id_leads_to_its_repository(packs: Any) -> None:
    index = packs.index(ids={"comfyui-kjnodes": "kijai/ComfyUI-KJNodes"})
    found = resolve_packs([packs.node("X")], live(X="custom_nodes.ComfyUI-KJNodes"), index=index)

    assert [(row.url, row.source) for row in found.packs] == [(KJ, "host")]


def test_a_folder_without_an_address_is_named_and_its_address_missed(packs: Any) -> None:
    found = resolve_packs([packs.node("X")], live(X="custom_nodes.own_nodes"))

    assert [(row.pack, row.url, row.source) for row in found.packs] == [("own_nodes", None, "host")]
    assert codes(found.findings) == ["pack_url_unknown", "pack_not_pinned"]


def test_what_a_node_says_goes_before_the_host_and_the_class_map(packs: Any) -> None:
    host = InstalledPack("two", GITHUB + "b/two", B)
    index = packs.index({"c/three": ("X",)}, installed=(host,))
    found = resolve_packs(
        [packs.node("X", aux="a/one", ver=A)], live(X="custom_nodes.two"), index=index, choices={}
    )

    assert [(row.url, row.commit, row.source) for row in found.packs] == [(GITHUB + "a/one", A, "aux_id")]


def test_an_id_that_no_list_has_gets_its_address_from_the_classes(schema: NodeSchema, packs: Any) -> None:
    index = packs.index({"a/one": ("X", "Y"), "b/two": ("Y",)})
    nodes = [packs.node("X", id="1", cnr="odd-id", ver=A), packs.node("Y", id="2", cnr="odd-id", ver=A)]
    found = resolve_packs(nodes, schema, index=index)

    assert {(row.url, row.commit, row.source) for row in found.packs} == {(GITHUB + "a/one", A, "node_map")}
    assert found.findings == ()


def test_an_id_without_an_address_is_still_named(schema: NodeSchema, packs: Any) -> None:
    found = resolve_packs([packs.node("X", cnr="Odd-Id", ver="1.0.0")], schema)

    assert [(row.pack, row.url, row.source) for row in found.packs] == [("odd-id", None, "cnr_id")]
    assert codes(found.findings) == ["pack_url_unknown", "pack_not_pinned"]


def test_one_choice_serves_all_classes_of_the_same_id(schema: NodeSchema, packs: Any) -> None:
    nodes = [packs.node("X", id="1", cnr="odd"), packs.node("Y", id="2", cnr="odd")]
    found = resolve_packs(nodes, schema, choices={"X": f"{GITHUB}a/one@{A}"})

    assert {(row.url, row.commit) for row in found.packs} == {(GITHUB + "a/one", A)}


@pytest.mark.parametrize(("chosen", "commit"), [("kijai/comfyui-kjnodes", A), ("me/fork", None)])
def test_a_version_is_never_taken_for_that_of_another_repository(
    schema: NodeSchema, packs: Any, chosen: str, commit: str | None
) -> None:
    nodes = [packs.node("X", aux="kijai/ComfyUI-KJNodes", ver=A)]
    found = resolve_packs(nodes, schema, choices={"X": GITHUB + chosen})

    assert [(row.url, row.commit) for row in found.packs] == [(GITHUB + chosen, commit)]


def test_a_choice_gives_an_id_its_address_and_keeps_its_version(schema: NodeSchema, packs: Any) -> None:
    found = resolve_packs([packs.node("X", cnr="odd", ver=A)], schema, choices={"X": GITHUB + "a/one"})

    assert [(row.url, row.commit) for row in found.packs] == [(GITHUB + "a/one", A)]


def test_nodes_of_one_class_that_name_two_packs_are_ambiguous(schema: NodeSchema, packs: Any) -> None:
    nodes = [packs.node("X", id="1", aux="a/one", ver=A), packs.node("X", id="2", aux="b/two", ver=B)]

    assert codes(resolve_packs(nodes, schema).findings) == ["ambiguous_pack"]


def test_two_lists_of_one_name_are_told_apart_by_the_class(schema: NodeSchema, packs: Any) -> None:
    index = packs.index({"a/Same": ("X",), "b/same": ("Y",)})
    found = resolve_packs([packs.node("Y", cnr="same", ver=A)], schema, index=index)

    assert [(row.url, row.source) for row in found.packs] == [(GITHUB + "b/same", "cnr_id")]


def test_a_class_that_nothing_knows_says_what_would_help(schema: NodeSchema, packs: Any) -> None:
    (finding,) = resolve_packs([packs.node("Nowhere", id="3")], schema).findings

    assert (finding.code, finding.severity, finding.node) == ("no_pack", Severity.WARNING, "3")
    assert "--node-map" in finding.remedy


def test_a_class_that_is_called_like_a_repository_hints_at_it(
    schema: NodeSchema, packs: Any, manager: PackIndex
) -> None:
    (finding,) = resolve_packs([packs.node("NunchakuFluxDiTLoader")], schema, index=manager).findings

    assert finding.code == "no_pack"
    assert "nunchaku-tech/ComfyUI-nunchaku" in finding.message
    assert "--node-map" not in finding.remedy


def test_a_preemption_decides_between_packs(schema: NodeSchema, packs: Any) -> None:
    index = packs.index({"a/one": ("X",), "b/two": ("X",)}, preempted={"X": "b/two"})

    assert resolve_packs([packs.node("X")], schema, index=index).packs[0].url == GITHUB + "b/two"


def test_a_pattern_finds_classes_that_nobody_names(
    schema: NodeSchema, packs: Any, manager: PackIndex
) -> None:
    found = resolve_packs([packs.node("Some Future Node (rgthree)")], schema, index=manager)

    assert [(row.url, row.source) for row in found.packs] == [(GITHUB + "rgthree/rgthree-comfy", "node_map")]


def test_types_that_a_pack_has_in_javascript_alone_are_known_and_not_needed(
    schema: NodeSchema, packs: Any
) -> None:
    found = resolve_packs([packs.node("SetNode")], schema)

    assert [(row.url, row.source) for row in found.packs] == [(KJ, "known")]
    assert found.needed == ()
    assert found.findings == ()


def test_odd_words_in_a_file_are_said_and_cut(schema: NodeSchema, packs: Any) -> None:
    found = resolve_packs(
        [packs.node("X", cnr="i" * 5000, aux="no repo " + "x" * 5000, ver="?" * 5000)], schema
    )

    assert codes(found.findings) == ["bad_pack_id", "bad_pack_id", "no_pack"]
    assert all(len(str(finding)) < 600 for finding in found.findings)


_TEXTS = st.one_of(
    st.none(), st.text(max_size=12), st.sampled_from(["a/b", "c", "1.2.0", A, "nightly", "comfy-core"])
)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["X", "Y", "KSampler", "SetNode", ""]) | st.text(max_size=5),
            _TEXTS,
            _TEXTS,
            _TEXTS,
        ),
        max_size=8,
    )
)
def test_whatever_nodes_say_there_is_an_answer_for_each_class(
    schema: NodeSchema, packs: Any, rows: list[tuple[str, str | None, str | None, str | None]]
) -> None:
    nodes = [
        packs.node(name, id=str(place), cnr=cnr, aux=aux, ver=ver)
        for place, (name, cnr, aux, ver) in enumerate(rows)
    ]
    index = packs.index({"a/b": ("X",), "d/c": ("X", "Y")}, ids={"c": "d/c"})
    found = resolve_packs(nodes, schema, index=index)

    assert {row.class_type for row in found.packs} <= {name for name, *_ in rows}
    for row in found.packs:
        assert row.commit is None or (row.url is not None or row.pack is not None)
        said = {finding.code for finding in found.findings}
        assert row.url is not None or said & {"no_pack", "ambiguous_pack", "pack_url_unknown"}


def test_many_unknown_classes_take_little_time(schema: NodeSchema, packs: Any, manager: PackIndex) -> None:
    nodes = [packs.node(f"Unheard of {place}", id=str(place)) for place in range(20_000)]
    begun = time.process_time()
    found = resolve_packs(nodes, schema, index=manager)

    assert len(found.packs) == 20_000
    assert time.process_time() - begun < 10


@pytest.mark.parametrize(
    ("workflow_id", "expected"),
    [
        ("382109ecebe1", {GITHUB + "ltdrdata/was-node-suite-comfyui"}),
        ("88aae7212a16", {None}),
        ("f28708beff34", {None}),
        ("99348e78281f", set()),
    ],
)
def test_real_files_and_the_real_class_map(
    schema: NodeSchema, data_dir: Path, manager: PackIndex, workflow_id: str, expected: set[str | None]
) -> None:
    file = data_dir / "workflows" / f"{workflow_id}.api.json"
    truth = json.loads((data_dir / "workflows" / f"{workflow_id}.truth.json").read_bytes())
    nodes = [file_node(node) for node in read_workflow(file.read_bytes(), name=file.name).nodes]
    found = resolve_packs(nodes, schema, index=manager)

    assert {row.url for row in found.packs} == expected
    assert {row.class_type for row in found.packs} == {row["class_type"] for row in truth["custom_nodes"]}


@pytest.mark.parametrize(
    "text",
    ["https://user:hunter2@github.com/a/b", "hunter2@github.com/a/b", "x?token=hunter2", "a:hunter2@b/c"],
)
def test_a_login_in_what_a_node_says_of_its_pack_is_not_told(
    schema: NodeSchema, packs: Any, text: str
) -> None:
    nodes = [packs.node("A", cnr=text), packs.node("B", aux=text), packs.node("C", aux="a/b", ver=text)]
    found = resolve_packs(nodes, schema)

    assert codes(found.findings).count("bad_pack_id") == 2
    assert "hunter2" not in found.model_dump_json()
