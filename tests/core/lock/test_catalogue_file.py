"""Catalogues in their three forms, and one name with two contents."""

import json
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from comfyfarm.errors import CatalogueError
from comfyfarm.lock.catalogue import Catalogue, merge
from comfyfarm.lock.catalogue_file import catalogue_of, parse_document

SHA = "ab" * 32
ROW: dict[str, Any] = {
    "folder": "vae",
    "path": "ae.safetensors",
    "sha256": SHA,
    "size": 3,
    "sources": ["x", "y"],
}
TOML = (
    f'[[models]]\nfolder = "vae"\npath = "ae.safetensors"\nsha256 = "{SHA}"\nsize = 3\nsources = ["x", "y"]\n'
)


def read_catalogue(data: bytes, *, name: str) -> Catalogue:
    return catalogue_of(parse_document(data, name=name), name=name)


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("c.json", json.dumps([ROW])),
        ("c", json.dumps([ROW])),
        ("comfyfarm.lock", json.dumps({"version": 1, "models": [ROW]})),
        ("c.yaml", yaml.safe_dump([ROW])),
        ("c.yml", yaml.safe_dump({"models": [ROW]})),
        ("c", yaml.safe_dump([ROW])),
        ("c.toml", TOML),
        ("c", TOML),
        ("s3://bucket/c.toml", "\ufeff" + TOML.replace("[[models]]", "[[models]]  # one")),
    ],
)
def test_each_form_says_the_same(name: str, data: str) -> None:
    (found,) = read_catalogue(data.encode(), name=name).entries

    assert found.model_dump(mode="json", exclude={"header"}) == ROW


@pytest.mark.parametrize(
    ("name", "data", "words"),
    [
        ("c.json", b"{", "not JSON"),
        ("c.json", b"3", "no list of models"),
        ("c.json", b'[{"folder":"a","folder":"b"}]', "occurs twice"),
        ("c.toml", b"[[", "not TOML"),
        ("c.yaml", b"a: [", "not YAML"),
        ("c.yaml", b"- \xff", "not UTF-8"),
        ("c.yaml", b"text", "no list of models"),
        ("c.yaml", b"- text", "0: "),
        ("c.yaml", b"- {folder: vae, path: ../x, sha256: a, size: x}", "0.path"),
        ("c.yaml", b"[" * 1500, "not YAML"),
        ("c.yaml", b"- !!python/object/apply:os.system [ls]", "not YAML"),
    ],
)
def test_what_is_no_catalogue_is_refused_by_name(name: str, data: bytes, words: str) -> None:
    with pytest.raises(CatalogueError, match=words) as caught:
        read_catalogue(data, name=name)
    assert str(caught.value).startswith(f"{name}: ")


def test_a_hash_in_capitals_is_the_same_hash() -> None:
    rows = [ROW, {**ROW, "sha256": ROW["sha256"].upper()}]
    (found,) = read_catalogue(json.dumps(rows).encode(), name="c.json").entries

    assert found.sha256 == ROW["sha256"]


def test_equal_entries_become_one_with_all_sources() -> None:
    rows = [ROW, {**ROW, "sources": ["y", "z"]}]
    (found,) = read_catalogue(json.dumps(rows).encode(), name="c.json").entries

    assert found.sources == ("x", "y", "z")


@pytest.mark.parametrize("folders", [("vae", "vae"), ("clip", "text_encoders"), ("unet", "diffusion_models")])
def test_one_name_with_two_contents_keeps_both(folders: tuple[str, str]) -> None:
    rows = [{**ROW, "folder": folders[0]}, {**ROW, "folder": folders[1], "sha256": "cd" * 32}]
    found = read_catalogue(json.dumps(rows).encode(), name="c.json")

    assert [entry.sha256[:2] for entry in found.candidates(folders[0], "ae.safetensors")] == ["ab", "cd"]


def test_several_catalogues_are_one() -> None:
    one = read_catalogue(json.dumps([ROW]).encode(), name="a.json")
    other = read_catalogue(json.dumps([{**ROW, "path": "b"}]).encode(), name="b.json")
    clash = read_catalogue(json.dumps([{**ROW, "size": 4}]).encode(), name="c.json")

    assert [entry.path for entry in merge([one, other]).entries] == ["ae.safetensors", "b"]
    assert len(merge([one, clash]).candidates("vae", "ae.safetensors")) == 2


def test_a_catalogue_lists_hub_repositories_and_what_a_file_is_made_of() -> None:
    repos = [{"id": "a/b", "revision": "c" * 40}]
    raw = {"models": [{**ROW, "header": {"tensors": 3}}], "repos": repos}
    found = read_catalogue(json.dumps(raw).encode(), name="c.json")

    assert [(repo.id, repo.revision) for repo in found.repos] == [("a/b", "c" * 40)]
    assert found.entries[0].header == {"tensors": 3}
    assert read_catalogue(json.dumps({"repos": repos}).encode(), name="c.json").entries == ()
    with pytest.raises(CatalogueError, match=r"c\.json: 0\.revision: "):
        read_catalogue(json.dumps({"models": [], "repos": [{"id": "a/b"}]}).encode(), name="c.json")


def test_old_folder_names_find_new_ones() -> None:
    found = read_catalogue(json.dumps([{**ROW, "folder": "clip"}]).encode(), name="c.json")

    assert found.get("text_encoders", "ae.safetensors") is not None
    assert found.get("clip", "ae.safetensors") is not None
    assert found.get("vae", "ae.safetensors") is None


@given(st.sampled_from(["c.json", "c.yaml", "c.toml", "c"]), st.binary(max_size=60))
def test_any_bytes_are_a_catalogue_or_refused(name: str, data: bytes) -> None:
    try:
        found = read_catalogue(data, name=name)
    except CatalogueError:
        return
    assert found.entries == ()
