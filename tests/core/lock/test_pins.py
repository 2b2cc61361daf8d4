"""From names to pins."""

import shlex
from copy import copy
from typing import Any

import pytest

from comfyfarm.errors import NamesMissing
from comfyfarm.ids import NodeId
from comfyfarm.lock.catalogue import Catalogue, LooseFile
from comfyfarm.lock.hints import Hint, hints_of
from comfyfarm.lock.lockfile import Lock, LockedModel, LockedRepo
from comfyfarm.lock.match import wanted
from comfyfarm.lock.pins import dropped_pins, make_lock, needs_of, pin
from comfyfarm.lock.resolve import Unresolved
from comfyfarm.workflow.file_node import FileNode, ModelHint
from comfyfarm.workflow.findings import Finding
from comfyfarm.workflow.references.find import Kind, References, Unclassified


def keys(lock: Lock) -> list[str]:
    return [f"{model.folder}/{model.path}" for model in lock.models]


def test_each_reference_becomes_a_pin(sample: Any) -> None:
    catalogue = sample.catalogue(
        sample.entry("vae", "ae.safetensors", content="vae", sources=("s3://m/ae",)),
        sample.entry("loras", "a/b.safetensors", content="lora"),
        sample.entry("loras", "unused.safetensors"),
    )
    needs = sample.references(
        sample.reference("vae", "ae.safetensors"),
        sample.reference("loras", "a/b.safetensors", node="5"),
        sample.reference("loras", "a/b.safetensors", node="6"),
    )

    lock = make_lock(needs, catalogue, schema_sha256="ab" * 32, comfyui="0.27.0")

    assert keys(lock) == ["loras/a/b.safetensors", "vae/ae.safetensors"]
    assert lock.models[1].sources == ("s3://m/ae",)
    assert (lock.models[1].sha256, lock.models[1].size) == (sample.sha("vae"), 3)
    assert (lock.schema_sha256, lock.comfyui) == ("ab" * 32, "0.27.0")
    assert [model.path for model in pin(needs, lock)] == ["a/b.safetensors", "ae.safetensors"]


def test_all_missing_names_are_told_at_once_with_places_and_near_names(sample: Any) -> None:
    catalogue = sample.catalogue(
        sample.entry("checkpoints", "sd_xl_base_1.0.safetensors"),
        sample.entry("vae", "x.pt"),
    )
    needs = sample.references(
        sample.reference("checkpoints", "sd_xl_base_1.O.safetensors"),
        sample.reference("loras", "x.pt", node="19:3"),
        sample.reference("loras", "x.pt", node="7"),
        sample.reference("vae", "x.pt"),
    )

    with pytest.raises(NamesMissing) as caught:
        make_lock(needs, catalogue)

    assert caught.value.names == (
        "checkpoints/sd_xl_base_1.O.safetensors (node 4 Loader.name)"
        "; near: checkpoints/sd_xl_base_1.0.safetensors",
        "loras/x.pt (node 19:3 Loader.name, node 7 Loader.name); near: vae/x.pt",
    )


@pytest.mark.parametrize(
    ("listed", "wanted"),
    [("clip", "text_encoders"), ("unet", "diffusion_models"), ("t2i_adapter", "controlnet"), ("vae", "vae")],
)
def test_an_old_folder_is_pinned_under_its_name_of_today(sample: Any, listed: str, wanted: str) -> None:
    needs = sample.references(sample.reference(wanted, "x.pt"))

    assert keys(make_lock(needs, sample.catalogue(sample.entry(listed, "x.pt")))) == [f"{wanted}/x.pt"]


def test_a_lock_written_by_hand_with_old_folders_pins_too(sample: Any) -> None:
    lock = Lock.model_validate({"models": [sample.entry("clip", "x.pt").model_dump()]})

    assert pin(sample.references(sample.reference("text_encoders", "x.pt")), lock) == lock.models


@pytest.mark.parametrize(
    ("listed", "name", "expected"),
    [
        (["Easy.pt"], "Easy", ["Easy.pt"]),
        (["Easy.bin", "Easy.safetensors"], "Easy", ["Easy.safetensors"]),
        (["Easy.pt", "Easy.safetensors"], "Easy.pt", ["Easy.pt"]),
    ],
)
def test_an_embedding_is_looked_for_as_comfyui_does(
    sample: Any, listed: list[str], name: str, expected: list[str]
) -> None:
    catalogue = sample.catalogue(*(sample.entry("embeddings", path) for path in listed))
    needs = sample.references(sample.reference("embeddings", name, kind=Kind.EMBEDDING))

    assert keys(make_lock(needs, catalogue)) == [f"embeddings/{path}" for path in expected]


def test_a_directory_is_one_pin_for_each_file(sample: Any) -> None:
    names = ["sd15/model_index.json", "sd15/unet/x.safetensors", "sd15b/y"]
    catalogue = sample.catalogue(*(sample.entry("diffusers", name) for name in names))
    needs = sample.references(sample.reference("diffusers", "sd15", kind=Kind.DIRECTORY))

    assert keys(make_lock(needs, catalogue)) == [f"diffusers/{name}" for name in names[:2]]


def test_an_approximate_vae_is_an_encoder_and_a_decoder(sample: Any) -> None:
    encoder, decoder = (sample.entry("vae_approx", f"taesd_{part}.pth") for part in ("encoder", "decoder"))
    needs = sample.references(sample.reference("vae_approx", "taesd"))

    assert len(make_lock(needs, sample.catalogue(encoder, decoder)).models) == 2
    with pytest.raises(NamesMissing, match="vae_approx/taesd"):
        make_lock(needs, sample.catalogue(encoder))


def test_a_model_without_known_folder_is_pinned_by_its_path_or_missed(sample: Any) -> None:
    unclassified = Unclassified(node=NodeId("11"), class_type="InstantID", input="file", name="a\\ip.bin")
    needs = References(unclassified=(unclassified,))

    assert keys(make_lock(needs, sample.catalogue(sample.entry("instantid", "a/ip.bin")))) == [
        "instantid/a/ip.bin"
    ]
    with pytest.raises(NamesMissing, match=r"\(folder not known\)/a/ip\.bin \(node 11 InstantID\.file\)"):
        make_lock(needs, sample.catalogue())


@pytest.mark.parametrize("kind", [Kind.URL, Kind.HF_REPO])
def test_what_the_catalogue_does_not_list_is_an_error_whatever_its_kind(sample: Any, kind: Kind) -> None:
    needs = sample.references(sample.reference(None, "https://h/x", kind=kind))

    with pytest.raises(NamesMissing, match=rf"https://h/x \({kind}\)"):
        make_lock(needs, sample.catalogue())


def test_what_is_not_active_needs_no_pin(sample: Any) -> None:
    needs = sample.references(sample.reference("vae", "x", active=False))

    assert make_lock(needs, sample.catalogue()).models == ()
    assert pin(needs, None) == ()


def test_a_workflow_without_its_lock_is_told_what_to_run(sample: Any) -> None:
    needs = sample.references(sample.reference("vae", "x.pt"), sample.reference("loras", "y.pt"))

    with pytest.raises(NamesMissing) as caught:
        pin(needs, None, workflows=["w.json"])

    assert "there is no comfyfarm.lock" in str(caught.value)
    assert "`comfyfarm lock w.json --catalog CATALOGUE -o comfyfarm.lock`" in str(caught.value)
    assert "name every workflow there that shares the lock" in str(caught.value)
    assert [name.split(" ")[0] for name in caught.value.names] == ["vae/x.pt", "loras/y.pt"]


def test_paths_in_the_command_are_quoted_for_a_shell(sample: Any) -> None:
    with pytest.raises(NamesMissing) as caught:
        pin(
            sample.references(sample.reference("vae", "x.pt")), None, workflows=["my w.json"], lock_name="a'b"
        )

    command = str(caught.value).split("`")[1]
    assert shlex.split(command) == ["comfyfarm", "lock", "my w.json", "--catalog", "CATALOGUE", "-o", "a'b"]


def test_pins_that_a_new_lock_has_no_more_are_counted_and_named(sample: Any) -> None:
    before = Lock(
        models=tuple(
            LockedModel(folder=folder, path=path, sha256=sample.sha(path), size=1)
            for folder, path in [("clip", "same"), *(("vae", path) for path in "abcd")]
        )
    )
    after = Lock(models=(LockedModel(folder="text_encoders", path="same", sha256=sample.sha("new"), size=1),))
    (found,) = dropped_pins(before, after, name="l")

    assert found.message == ("4 models that l pinned before are not in it any more: vae/a, vae/b, vae/c, …")
    assert found.remedy == "name every workflow that shares it"
    assert dropped_pins(after, before, name="l") == ()


def test_an_unlocked_reference_is_an_error_beside_locked_ones(sample: Any) -> None:
    have, need = sample.reference("vae", "x.pt"), sample.reference("loras", "y.pt")
    lock = make_lock(sample.references(have), sample.catalogue(sample.entry("vae", "x.pt")))

    with pytest.raises(NamesMissing, match=r"comfyfarm\.lock does not pin") as caught:
        pin(sample.references(have, need), lock)
    assert len(caught.value.names) == 1


def test_several_workflows_make_one_lock(sample: Any) -> None:
    catalogue = sample.catalogue(sample.entry("vae", "x.pt"), sample.entry("loras", "y.pt"))
    each = [sample.references(sample.reference(f, p)) for f, p in (("vae", "x.pt"), ("loras", "y.pt"))]

    assert keys(make_lock(each, catalogue)) == ["loras/y.pt", "vae/x.pt"]


# --- hub repositories, addresses, tags, what loads by itself -------------------------------------


def test_a_hub_repository_is_pinned_to_the_catalogues_revision(sample: Any) -> None:
    needs = sample.references(sample.reference(None, "microsoft/Florence-2-base", kind=Kind.HF_REPO))
    repo = LockedRepo(id="microsoft/Florence-2-base", revision="d" * 40)
    lock = make_lock(needs, Catalogue(repos=(repo,)))

    assert lock.repos == (repo,)
    assert pin(needs, lock) == ()
    with pytest.raises(NamesMissing, match="under `repos` of a catalogue"):
        make_lock(needs, Catalogue())
    with pytest.raises(NamesMissing, match=r"Florence-2-base \(hf_repo\)"):
        pin(needs, Lock())


def test_a_hub_repository_of_two_revisions_is_ambiguous(sample: Any) -> None:
    needs = sample.references(sample.reference(None, "a/b", kind=Kind.HF_REPO))
    repos = tuple(LockedRepo(id="a/b", revision=sign * 40) for sign in "12")

    with pytest.raises(Unresolved, match="ambiguous_revision: node 4 name: a/b has several revisions"):
        make_lock(needs, Catalogue(repos=repos))


def test_an_address_is_pinned_where_the_catalogue_names_it_as_a_source(sample: Any) -> None:
    url = "https://h/142421"
    needs = sample.references(sample.reference(None, url, kind=Kind.URL))
    lock = make_lock(
        needs, sample.catalogue(sample.entry("checkpoints", "x.safetensors", sources=("y", url)))
    )

    assert keys(lock) == ["checkpoints/x.safetensors"]
    assert pin(needs, lock) == lock.models


def test_no_login_or_token_of_an_address_is_printed(sample: Any) -> None:
    needs = sample.references(sample.reference(None, "https://me:hunter2@h/x?token=hunter2", kind=Kind.URL))

    for lacking in (lambda: make_lock(needs, Catalogue()), lambda: pin(needs, Lock())):
        with pytest.raises(NamesMissing, match=r"https://\*\*\*@h/x\?token=\*\*\* \(url\)") as caught:
            lacking()
        assert "hunter2" not in str(caught.value)


def test_what_a_class_loads_by_itself_is_missing_and_no_error(sample: Any) -> None:
    needs = sample.references(sample.reference("insightface", "antelopev2", kind=Kind.IMPLICIT))
    warnings: list[Finding] = []
    lock = make_lock(needs, sample.catalogue(), warnings=warnings)

    assert [(item.kind, item.name) for item in lock.missing] == [("model", "insightface/antelopev2")]
    assert [(one.code, one.severity, one.node) for one in warnings] == [("not_pinned", "warning", "4")]
    assert pin(needs, lock) == pin(needs, None) == ()
    listed = sample.catalogue(
        *(sample.entry("insightface", f"models/antelopev2/{name}.onnx", content=name) for name in "ab"),
        sample.entry("insightface", "models/buffalo_l/c.onnx"),
    )
    assert keys(make_lock(needs, listed)) == [f"insightface/models/antelopev2/{name}.onnx" for name in "ab"]


def test_of_a_class_of_which_only_the_folder_is_known_all_that_is_listed_is_locked(sample: Any) -> None:
    implicit = sample.reference("insightface", "x", kind=Kind.IMPLICIT).model_copy(
        update={"path": None, "name": None, "input": None}
    )
    needs = sample.references(implicit)
    entries = [sample.entry("insightface", f"models/{name}.onnx", content=name) for name in "ab"]
    warnings: list[Finding] = []
    lock = make_lock(needs, sample.catalogue(*entries, sample.entry("vae", "x")), warnings=warnings)

    assert keys(lock) == ["insightface/models/a.onnx", "insightface/models/b.onnx"]
    assert [found.code for found in warnings] == ["implicit_folder"]
    assert pin(needs, lock) == lock.models
    assert wanted(needs_of(needs))("insightface", "any/thing")
    assert [item.name for item in make_lock(needs, sample.catalogue()).missing] == ["Loader"]


@pytest.mark.parametrize(
    ("tag", "found"),
    [
        ("sub/a.safetensors", ["loras/sub/a.safetensors"]),
        ("sub/a", ["loras/sub/a.safetensors"]),
        ("a", ["loras/sub/a.safetensors"]),
        ("a.safetensors", ["loras/sub/a.safetensors"]),
        ("style_v1.5", ["loras/style_v1.5.safetensors"]),
        ("top", ["loras/top.pt"]),
    ],
)
def test_a_lora_tag_may_leave_out_suffix_and_folder(sample: Any, tag: str, found: list[str]) -> None:
    names = ["sub/a.safetensors", "style_v1.5.safetensors", "top.pt", "other/top.pt", "sub/notes.a"]
    catalogue = sample.catalogue(*(sample.entry("loras", name) for name in names))
    needs = sample.references(sample.reference("loras", tag, kind=Kind.LORA_TEXT))

    assert keys(make_lock(needs, catalogue)) == found
    assert len(pin(needs, make_lock(needs, catalogue))) == 1


def test_a_lora_tag_that_may_be_two_files_names_both(sample: Any) -> None:
    catalogue = sample.catalogue(*(sample.entry("loras", f"{folder}/a.pt") for folder in "xy"))
    needs = sample.references(sample.reference("loras", "a", kind=Kind.LORA_TEXT))

    with pytest.raises(
        Unresolved, match=r"ambiguous_name: node 4 name: 'a' may be any of loras/x/a.pt, loras/y/a"
    ):
        make_lock(needs, catalogue)


# --- names that are written otherwise ------------------------------------------------------------

NFC, NFD = "caf\u00e9.pt", "cafe\u0301.pt"


def test_names_match_exactly_before_they_match_in_another_unicode_form(sample: Any) -> None:
    both = sample.catalogue(sample.entry("vae", NFC, content="c"), sample.entry("vae", NFD, content="d"))
    one = sample.catalogue(sample.entry("vae", NFC, content="c"))
    needs = sample.references(sample.reference("vae", NFD))
    warnings: list[Finding] = []

    assert make_lock(needs, both).models[0].sha256 == sample.sha("d")
    lock = make_lock(needs, one, warnings=warnings)
    assert (lock.models[0].path, lock.models[0].sha256) == (NFD, sample.sha("c"))
    assert [found.code for found in warnings] == ["name_altered"]
    assert pin(needs, lock) == lock.models


@pytest.mark.parametrize("written", ["x y.pt ", "x%20y.pt", " x y.pt", "x%20y.pt%20"])
def test_spaces_and_percent_signs_are_forgiven_with_a_warning(sample: Any, written: str) -> None:
    warnings: list[Finding] = []
    needs = sample.references(sample.reference("vae", written))
    lock = make_lock(needs, sample.catalogue(sample.entry("vae", "x y.pt")), warnings=warnings)

    assert keys(lock) == [f"vae/{written}"]  # what the server will be asked for
    assert [found.code for found in warnings] == ["name_altered"]
    exact = sample.catalogue(sample.entry("vae", "x y.pt"), sample.entry("vae", written, content="exact"))
    assert make_lock(needs, exact).models[0].sha256 == sample.sha("exact")


@pytest.mark.parametrize("written", ["../x.pt", "/x.pt", "C:/x.pt", ""])
def test_a_name_that_no_lock_can_hold_is_missing_and_no_crash(sample: Any, written: str) -> None:
    with pytest.raises(NamesMissing):
        make_lock(
            sample.references(sample.reference("vae", written)), sample.catalogue(sample.entry("vae", "x.pt"))
        )


@pytest.mark.parametrize(
    ("folder", "name", "listed"),
    [
        ("unet_gguf", "x.gguf", ("unet", "x.gguf")),
        ("clip_gguf", "x.gguf", ("text_encoders", "x.gguf")),
        ("ultralytics_bbox", "face.pt", ("ultralytics", "bbox/face.pt")),
        ("ultralytics_bbox", "face.pt", ("ultralytics_bbox", "face.pt")),
        ("ultralytics_segm", "hand.pt", ("ultralytics", "segm/hand.pt")),
    ],
)
def test_a_key_of_a_pack_is_found_where_its_folder_lies(
    sample: Any, folder: str, name: str, listed: tuple[str, str]
) -> None:
    entry = sample.entry(*listed)
    needs = sample.references(sample.reference(folder, name))
    lock = make_lock(needs, sample.catalogue(entry))

    assert [model.modern_key for model in lock.models] == [entry.key]
    assert pin(needs, lock) == lock.models


# --- one name, several contents ------------------------------------------------------------------


def test_one_name_of_two_contents_is_ambiguous_unless_a_lock_pins_one(sample: Any) -> None:
    catalogue = sample.catalogue(*(sample.entry("vae", "x.pt", content=text) for text in ("old", "new!")))
    needs = sample.references(sample.reference("vae", "x.pt"), sample.reference("vae", "gone.pt", node="5"))
    only = sample.references(sample.reference("vae", "x.pt"))

    with pytest.raises(
        Unresolved, match=r"ambiguous_hash: node 4 name: vae/x\.pt stands for several"
    ) as caught:
        make_lock(needs, catalogue)
    assert [name.split(" ")[0] for name in caught.value.names] == ["vae/gone.pt"]
    assert copy(caught.value).findings == caught.value.findings  # as a process pool would
    earlier = make_lock(only, sample.catalogue(sample.entry("vae", "x.pt", content="old")))
    assert make_lock(only, catalogue, pinned=earlier).models[0].sha256 == sample.sha("old")


def test_two_contents_under_a_name_that_nobody_uses_are_nobodys_business(sample: Any) -> None:
    entries = [sample.entry("vae", "x.pt", content=text) for text in ("old", "new")]
    needs = sample.references(sample.reference("vae", "y.pt"))

    assert keys(make_lock(needs, sample.catalogue(*entries, sample.entry("vae", "y.pt")))) == ["vae/y.pt"]


def test_one_base_name_in_several_folders_is_several_entries(sample: Any) -> None:
    name = "diffusion_pytorch_model.safetensors"
    places = [("controlnet", f"instantid/{name}"), ("controlnet", f"canny/{name}"), ("vae", name)]
    catalogue = sample.catalogue(*(sample.entry(*place, content=str(place)) for place in places))
    lock = make_lock(sample.references(*(sample.reference(*place) for place in places)), catalogue)

    assert {model.modern_key: model.sha256 for model in lock.models} == {
        place: sample.sha(str(place)) for place in places
    }


# --- what the workflow file says of its models ----------------------------------------------------


def hint(sample: Any, content: str | None, **changes: Any) -> Hint:
    sha = sample.sha(content) if content is not None else None
    return Hint(NodeId("4"), "x.pt", "vae", sha, "https://h/x.pt")._replace(**changes)


def test_a_hint_without_a_hash_adds_its_address(sample: Any) -> None:
    needs = sample.references(sample.reference("vae", "sub/x.pt"))
    catalogue = sample.catalogue(sample.entry("vae", "sub/x.pt", sources=("a",)))
    (model,) = make_lock(needs, catalogue, hints=[hint(sample, None)]).models

    assert model.sources == ("a", "https://h/x.pt")


@pytest.mark.parametrize("stale", [{"name": "y.pt"}, {"node": NodeId("9"), "folder": "loras"}])
def test_a_hint_of_something_else_says_nothing(sample: Any, stale: dict[str, Any]) -> None:
    needs = sample.references(sample.reference("vae", "x.pt"))
    catalogue = sample.catalogue(sample.entry("vae", "x.pt"))
    (model,) = make_lock(needs, catalogue, hints=[hint(sample, "other", **stale)]).models

    assert model.sources == ()


def test_a_hint_that_contradicts_the_catalogue_is_ambiguous_unless_a_lock_pins_one(sample: Any) -> None:
    needs = sample.references(sample.reference("vae", "x.pt"))
    catalogue = sample.catalogue(sample.entry("vae", "x.pt", content="mine"))
    earlier = make_lock(needs, catalogue)

    with pytest.raises(Unresolved, match="ambiguous_hash"):
        make_lock(needs, catalogue, hints=[hint(sample, "theirs")])
    (model,) = make_lock(needs, catalogue, hints=[hint(sample, "theirs")], pinned=earlier).models
    assert (model.sha256, model.sources) == (sample.sha("mine"), ())
    assert make_lock(needs, catalogue, hints=[hint(sample, "mine")]).models[0].sources == ("https://h/x.pt",)


def test_a_hint_with_a_hash_is_an_entry_when_its_address_tells_the_size(sample: Any) -> None:
    needs = sample.references(sample.reference("vae", "x.pt"))
    (model,) = make_lock(
        needs, Catalogue(), hints=[hint(sample, "x")], size_of={"https://h/x.pt": 7}.get
    ).models

    assert (model.sha256, model.size, model.sources) == (sample.sha("x"), 7, ("https://h/x.pt",))
    for hints, size_of in (([hint(sample, "x")], lambda _: None), ([hint(sample, None)], lambda _: 7)):
        with pytest.raises(NamesMissing):
            make_lock(needs, Catalogue(), hints=hints, size_of=size_of)


def test_hints_are_read_from_nodes_and_name_no_files_of_this_machine() -> None:
    models = (
        ModelHint("a\\x.pt", "https://h/x", "clip", "ab" * 32),
        ModelHint("y.pt", "file:///etc/passwd", None, "short"),
    )
    found = hints_of([FileNode(NodeId("3"), "Loader", {}, models=models)])

    assert found == (
        Hint(NodeId("3"), "a/x.pt", "text_encoders", "ab" * 32, "https://h/x"),
        Hint(NodeId("3"), "y.pt", None, None, None),
    )


def test_a_mirrors_bare_name_is_taken_with_a_warning(sample: Any) -> None:
    def loose(content: str, folder: str | None = None) -> LooseFile:
        return LooseFile(name="x.pt", folder=folder, sha256=sample.sha(content), size=1, sources=("m",))

    needs = sample.references(sample.reference("vae", "sub/x.pt"))
    warnings: list[Finding] = []
    (model,) = make_lock(needs, Catalogue(loose=(loose("a"),)), warnings=warnings).models

    assert (model.modern_key, model.sha256, model.sources) == (("vae", "sub/x.pt"), sample.sha("a"), ("m",))
    assert [found.code for found in warnings] == ["matched_by_basename"]
    with pytest.raises(Unresolved, match="ambiguous_hash"):
        make_lock(needs, Catalogue(loose=(loose("a"), loose("b"))))
    both = sample.references(sample.reference("vae", "sub/x.pt"), sample.reference("vae", "other/x.pt"))
    with pytest.raises(Unresolved, match=r"'other/x\.pt' and 'sub/x\.pt' would both be the mirror's 'x\.pt'"):
        make_lock(both, Catalogue(loose=(loose("a"),)))
    with pytest.raises(NamesMissing, match=r"near: loras/x\.pt"):
        make_lock(needs, Catalogue(loose=(loose("a", "loras"),)))


def test_what_has_to_be_hashed_is_everything_that_may_be_meant(sample: Any) -> None:
    is_wanted = wanted(
        needs_of(
            sample.references(
                sample.reference("vae", NFD),
                sample.reference("loras", "sub/x", kind=Kind.LORA_TEXT),
                sample.reference("diffusers", "sd15", kind=Kind.DIRECTORY),
                sample.reference("vae_approx", "taesd"),
                sample.reference("vae", "a%20b.pt "),
            )
        )
    )

    for path in (NFC, "any/x.safetensors", "sd15/unet/y.bin", "taesd_decoder.pth", "a b.pt", "a%20b.pt"):
        assert is_wanted("any", path), path
    assert not is_wanted("vae", "other.pt")
