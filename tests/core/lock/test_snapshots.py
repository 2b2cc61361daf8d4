"""Snapshots of ComfyUI-Manager and comfy-pack.

The forms are those that ComfyUI-Manager 4.3 (`get_current_snapshot`) and comfy-pack (its first versions'
`_write_snapshot`, and its later one, which extends a Manager's snapshot) write; the values are made up.
"""

import hashlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from comfyfarm.lock.locked_packs import locked_packs
from comfyfarm.lock.lockfile import LockedPack
from comfyfarm.lock.snapshots import import_snapshot, is_snapshot
from comfyfarm.workflow.packs.pack import Pack, PackResolution

C = {name: name * 40 for name in "abcd"}
MANAGER: dict[str, Any] = {
    "comfyui": C["a"],
    "git_custom_nodes": {
        "https://github.com/me/One.git": {"hash": C["b"], "disabled": False},
        "git@github.com:me/Two": {"hash": C["c"], "disabled": False},
        "https://github.com/me/off": {"hash": C["d"], "disabled": True},
        "https://github.com/me/odd": {"hash": "no", "disabled": False},
    },
    "cnr_custom_nodes": {"comfyui-impact-pack": "8.15.3"},
    "file_custom_nodes": [{"filename": "x.py", "disabled": False}],
    "pips": {"torch==2.4.0": "", "aiohttp==3.9.0": ""},
}
MODEL: dict[str, Any] = {
    "filename": "models/loras/sub/x.safetensors",
    "size": 5,
    "atime": 1.5,
    "disabled": False,
    "sha256": "ab" * 32,
    "source": {
        "source": "huggingface", "repo": "me/repo", "commit": C["d"], "path": "w/x.safetensors",
        "download_url": "w/x.safetensors",
    },
}  # fmt: skip
PACK: dict[str, Any] = {
    "python": "3.11",
    "comfyui": C["a"],
    "models": [MODEL],
    "custom_nodes": [
        {"url": "https://github.com/me/One", "commit_hash": C["b"], "disabled": False},
        {"url": "https://github.com/me/off", "commit_hash": C["b"], "disabled": True},
        {"url": "", "commit_hash": C["b"], "disabled": False},
    ],
}


@pytest.mark.parametrize("raw", [MANAGER, {"custom_nodes": MANAGER}])
def test_a_managers_snapshot_gives_packs_python_and_comfyui(raw: dict[str, Any]) -> None:
    assert is_snapshot(raw)
    found = import_snapshot(raw)

    assert found.packs == (
        LockedPack(name="One", url="https://github.com/me/One", commit=C["b"]),
        LockedPack(name="Two", url="https://github.com/me/Two", commit=C["c"]),
    )
    assert [(item.kind, item.name) for item in found.missing] == [
        ("pack", "odd"),
        ("pack", "comfyui-impact-pack"),
    ]
    assert "8.15.3" in found.missing[1].reason
    assert found.python == {"source": "snapshot", "packages": ["aiohttp==3.9.0", "torch==2.4.0"]}
    assert found.comfyui == C["a"]


def test_only_pins_of_a_snapshots_packages_are_taken_and_no_secret_is_told() -> None:
    good = ["torch==2.8.0+cu128", "a.b-c[d,e]==1!2.0.post1"]
    odd = [
        "--index-url https://user:hunter2@h/",
        "x @ git+https://hunter2@github.com/me/x",
        "git+https://hunter2@github.com/me/y",
        "hunter2:hunter2@h/x.whl",
        "y==1.0 --index-url https://user:hunter2@h/",
        "y==1.0\n--find-links https://user:hunter2@h/",
        "numpy",
        "https://h/x.whl?token=hunter2",
        "-e /home/hunter2/x",
    ]
    found = import_snapshot(MANAGER | {"pips": dict.fromkeys([*good, *odd], ""), "python": "u:hunter2@h"})

    assert found.python == {"source": "snapshot", "packages": sorted(good)}
    (told,) = found.findings
    assert (told.code, told.severity) == ("package_not_pinned", "warning")
    assert "9 entries" in told.message
    assert "numpy" in told.message
    assert "hunter2" not in str(told) + str(found.python)


def test_a_login_in_a_packs_address_is_not_told() -> None:
    clones = {"ftp://me:hunter2@h/x": {"hash": C["b"]}}
    found = import_snapshot(
        {"git_custom_nodes": clones, "cnr_custom_nodes": {"https://u:hunter2@h/y": "1.0"}}
    )

    assert [item.name for item in found.missing] == ["ftp://***@h/x", "https://***@h/y"]
    assert "hunter2" not in repr(found.missing)


def test_a_hash_in_capitals_is_the_same_hash() -> None:
    (entry,) = import_snapshot(PACK | {"models": [MODEL | {"sha256": "AB" * 32}]}).catalogue.entries

    assert entry.sha256 == "ab" * 32


def test_a_comfy_packs_snapshot_gives_models_with_their_place_at_the_hub() -> None:
    assert is_snapshot(PACK)
    found = import_snapshot(PACK)
    (entry,) = found.catalogue.entries

    assert (entry.folder, entry.path, entry.sha256, entry.size) == (
        "loras", "sub/x.safetensors", "ab" * 32, 5,
    )  # fmt: skip
    assert entry.sources == (f"https://huggingface.co/me/repo/resolve/{C['d']}/w/x.safetensors",)
    assert [pack.name for pack in found.packs] == ["One"]
    assert [item.name for item in found.missing] == ["(without a name)"]
    assert found.python == {"source": "snapshot", "version": "3.11"}


def test_a_later_comfy_packs_snapshot_is_both() -> None:
    found = import_snapshot(MANAGER | {"python": "3.12", "models": [MODEL]})

    assert len(found.packs) == 2
    assert len(found.catalogue.entries) == 1
    assert found.python == {
        "source": "snapshot",
        "version": "3.12",
        "packages": ["aiohttp==3.9.0", "torch==2.4.0"],
    }


@pytest.mark.parametrize(
    "changes",
    [
        {"sha256": None},
        {"sha256": "AB"},
        {"size": None},
        {"size": -1},
        {"filename": "models/x.safetensors"},
        {"filename": "models/loras/../../x"},
        # comfy-pack makes this up for files that it bundles.
        {"sha256": hashlib.sha256(MODEL["filename"].encode()).hexdigest(), "bundled": True},
    ],
)
def test_a_model_without_a_hash_that_can_be_believed_is_left_out(changes: dict[str, Any]) -> None:
    assert import_snapshot(PACK | {"models": [MODEL | changes, 3]}).catalogue.entries == ()


def test_windows_paths_and_addresses_for_downloads_are_read() -> None:
    source = {"source": "civitai", "download_url": "https://civitai.com/api/download/models/7"}
    model = MODEL | {"filename": "models\\loras\\a\\x.pt", "source": source}
    (entry,) = import_snapshot({"models": [model]}).catalogue.entries

    assert (entry.path, entry.sources) == ("a/x.pt", ("https://civitai.com/api/download/models/7",))


@pytest.mark.parametrize(
    "raw", [[], {}, {"models": []}, {"models": [{"folder": "vae", "path": "x"}]}, {"nodes": []}, "text", None]
)
def test_other_documents_are_no_snapshots(raw: Any) -> None:
    assert not is_snapshot(raw)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3),
    max_leaves=9,
)
KEYS = ("comfyui", "git_custom_nodes", "cnr_custom_nodes", "pips", "models", "custom_nodes", "python")


@given(st.dictionaries(st.sampled_from(KEYS), JSON), st.dictionaries(st.sampled_from(list(MODEL)), JSON))
def test_any_snapshot_is_read_without_a_crash(raw: dict[str, Any], model: dict[str, Any]) -> None:
    import_snapshot(raw)
    import_snapshot({"models": [MODEL | model], "custom_nodes": [raw], "git_custom_nodes": {"x": raw}})


def test_packs_that_a_workflow_needs_are_pinned_or_missing_with_the_reason() -> None:
    rows = (
        Pack(class_type="A", pack="One", url="https://github.com/me/one", commit=C["a"], source="cnr_id"),
        Pack(class_type="B", pack="Two", url="https://github.com/me/two", source="aux_id"),
        Pack(class_type="C", pack="three", source="cnr_id"),
        Pack(class_type="D"),
        Pack(class_type="E", pack="Two", url="https://github.com/me/two", source="aux_id"),
    )
    packs, missing = locked_packs([PackResolution(packs=rows, needed=rows)], import_snapshot(MANAGER).packs)

    # One: the workflow's own word; Two: the snapshot's commit.
    assert {pack.name: pack.commit for pack in packs} == {"One": C["a"], "Two": C["c"]}
    assert {item.name: item.reason for item in missing} == {
        "three": "its repository is not known",
        "D": "nothing says which node pack has the class 'D'",
    }
    _, alone = locked_packs([PackResolution(packs=rows, needed=rows)])
    assert [item.name for item in alone] == ["Two", "three", "D"]
