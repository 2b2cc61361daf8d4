"""From names to pins."""

from typing import Any

import pytest

from comfyfarm.errors import NamesMissing
from comfyfarm.ids import NodeId
from comfyfarm.lock.lockfile import Lock
from comfyfarm.lock.resolve import make_lock, pin
from comfyfarm.workflow.references import Kind, References, Unclassified


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


@pytest.mark.parametrize("kind", [Kind.URL, Kind.HF_REPO, Kind.IMPLICIT])
def test_what_no_lock_can_pin_yet_is_an_error_and_not_skipped(sample: Any, kind: Kind) -> None:
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
        pin(needs, None, workflow="w.json")

    assert "there is no comfyfarm.lock" in str(caught.value)
    assert "`comfyfarm lock w.json --catalog CATALOGUE -o comfyfarm.lock`" in str(caught.value)
    assert [name.split(" ")[0] for name in caught.value.names] == ["vae/x.pt", "loras/y.pt"]


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
