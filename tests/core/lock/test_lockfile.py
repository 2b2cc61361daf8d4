"""The lock file: strict to read, stable to write."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from comfyfarm.errors import CatalogueError
from comfyfarm.lock.lockfile import Lock, LockedModel, read_lock, write_lock

SHA = "ab" * 32


def model(**changes: Any) -> dict[str, Any]:
    return {
        "folder": "loras",
        "path": "a/b.safetensors",
        "sha256": SHA,
        "size": 3,
        "sources": ["s3://b/k"],
        **changes,
    }


def read(raw: Any) -> Lock:
    return read_lock(json.dumps(raw).encode(), name="comfyfarm.lock")


def test_a_lock_has_the_contracts_form() -> None:
    lock = Lock(models=(LockedModel.model_validate(model()),), comfyui="0.27.0")
    text = write_lock(lock).decode()

    assert text.endswith("}\n")
    assert json.loads(text) == {
        "version": 1,
        "models": [{**model(), "header": None}],
        "repos": [],
        "packs": [],
        "python": None,
        "comfyui": "0.27.0",
        "schema_sha256": None,
    }
    assert f'      "sha256": "{SHA}",\n      "size": 3,\n' in text


def test_the_order_of_models_does_not_matter() -> None:
    models = [LockedModel.model_validate(model(path=path)) for path in ("b", "a", "c/d")]
    one, other = Lock(models=tuple(models)), Lock(models=tuple(reversed(models)))

    assert write_lock(one) == write_lock(other)
    assert one.digest == other.digest
    assert one.digest != Lock().digest


def test_a_changed_hash_changes_one_line() -> None:
    before = write_lock(read({"version": 1, "models": [model(), model(path="z")]})).splitlines()
    after = write_lock(
        read({"version": 1, "models": [model(sha256="cd" * 32), model(path="z")]})
    ).splitlines()

    assert sum(one != other for one, other in zip(before, after, strict=True)) == 1


def test_unknown_fields_are_kept_everywhere() -> None:
    raw = {
        "version": 1,
        "future": {"a": [1]},
        "models": [model(licence="MIT")],
        "repos": [{"id": "a/b", "revision": "c", "note": 1}],
        "packs": [{"name": "p", "url": "u", "commit": "c", "pip": ["x"]}],
    }
    written = json.loads(write_lock(read(raw)))

    assert written["future"] == {"a": [1]}
    assert written["models"][0]["licence"] == "MIT"
    assert written["repos"][0]["note"] == 1
    assert written["packs"][0]["pip"] == ["x"]


@pytest.mark.parametrize("folder", ["AnimateDiff", "clip_vision", "ultralytics_bbox", "LLM", "a.b", "t5-xxl"])
def test_folder_names_of_custom_nodes_are_taken(folder: str) -> None:
    assert read({"version": 1, "models": [model(folder=folder)]}).models[0].folder == folder


@pytest.mark.parametrize(
    ("changes", "place"),
    [
        ({"path": "../x"}, "models.0.path"),
        ({"path": "/x"}, "models.0.path"),
        ({"path": "a//b"}, "models.0.path"),
        ({"path": "a\\b"}, "models.0.path"),
        ({"path": "C:/x"}, "models.0.path"),
        ({"path": "a/./b"}, "models.0.path"),
        ({"path": ""}, "models.0.path"),
        ({"folder": "../loras"}, "models.0.folder"),
        ({"folder": "a/b"}, "models.0.folder"),
        ({"folder": ".hidden"}, "models.0.folder"),
        ({"folder": ""}, "models.0.folder"),
        ({"sha256": SHA.upper()}, "models.0.sha256"),
        ({"sha256": 7}, "models.0.sha256"),
        ({"size": -1}, "models.0.size"),
        ({"size": 10**15}, "models.0.size"),
        ({"sources": "s3://b/k"}, "models.0.sources"),
        ({"sources": [""]}, "models.0.sources.0"),
    ],
)
def test_a_wrong_field_is_named_with_its_place(changes: dict[str, Any], place: str) -> None:
    with pytest.raises(CatalogueError, match=r"^comfyfarm\.lock: ") as caught:
        read({"version": 1, "models": [model(**changes)]})

    assert f"comfyfarm.lock: {place}: " in str(caught.value)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "not JSON"),
        (b"[]", "is no lock"),
        (b"{}", "version is None"),
        (b'{"version":2}', "reads version 1"),
        (b'{"version":true}', "version is True"),
        (b'{"version":1,"version":1}', "occurs twice"),
        (b'{"version":1,"models":[NaN]}', "no JSON number"),
        (b'{"version":1,"models":3}', "models"),
        (b"[" * 100_000, "nested deeper"),
    ],
)
def test_what_is_no_lock_is_refused_by_name(data: bytes, words: str) -> None:
    with pytest.raises(CatalogueError, match=words):
        read_lock(data, name="comfyfarm.lock")


def test_one_name_stands_once() -> None:
    with pytest.raises(CatalogueError, match=r"loras/a/b\.safetensors is listed twice"):
        read({"version": 1, "models": [model(), model(sha256="cd" * 32)]})


def test_a_lock_cannot_be_changed() -> None:
    with pytest.raises(ValidationError):
        Lock().models = ()  # type: ignore[misc]


TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"))
NAMES = st.text(alphabet="abcXYZ019_-. éж新", min_size=1, max_size=8).filter(lambda s: s.strip(". ") == s)
MODELS = st.builds(
    LockedModel,
    folder=st.sampled_from(["checkpoints", "loras", "AnimateDiff"]),
    path=st.lists(NAMES, min_size=1, max_size=3).map("/".join),
    sha256=st.text(alphabet="0123456789abcdef", min_size=64, max_size=64),
    size=st.integers(min_value=0, max_value=2**46),
    sources=st.lists(TEXT.filter(bool), max_size=3).map(tuple),
    header=st.none() | st.dictionaries(TEXT, st.integers() | TEXT, max_size=2),
)
LOCKS = st.builds(
    Lock,
    models=st.lists(MODELS, max_size=5, unique_by=lambda item: (item.folder, item.path)).map(tuple),
    comfyui=st.none() | TEXT,
)


@given(LOCKS)
def test_what_is_written_is_read_back_the_same(lock: Lock) -> None:
    again = read_lock(write_lock(lock), name="x")

    assert sorted(again.models, key=lambda m: (m.folder, m.path)) == sorted(
        lock.models, key=lambda m: (m.folder, m.path)
    )
    assert again.comfyui == lock.comfyui
    assert write_lock(again) == write_lock(lock)
    assert again.digest == lock.digest
