"""What a host says of its packs."""

import json
from typing import Any

import pytest

from comfyfarm.errors import CatalogueError
from comfyfarm.lock.host_packs import read_host_packs
from comfyfarm.workflow.packs.index import InstalledPack

A = "a" * 40
URL = "https://github.com/a/One"


def read(raw: Any) -> tuple[InstalledPack, ...]:
    return read_host_packs(json.dumps(raw).encode(), name="host.json").installed


def test_a_snapshot_has_commits_of_clones_and_releases_of_the_registrys() -> None:
    raw = {
        "comfyui": "b" * 40,
        "git_custom_nodes": {
            URL + ".git": {"hash": A, "disabled": False},
            "no address": {"hash": A},
            "https://github.com/a/off": {"hash": A, "disabled": True},
        },
        "cnr_custom_nodes": {"comfyui-two": "1.2.3"},
        "file_custom_nodes": [],
        "pips": {},
    }

    assert read(raw) == (
        InstalledPack("One", URL, A),
        InstalledPack("comfyui-two", id="comfyui-two", version="1.2.3"),
    )
    assert read({"custom_nodes": raw}) == read(raw)


def test_the_answer_of_a_server_has_a_version_of_each_folder() -> None:
    found = read(
        {
            "One": {"ver": A, "cnr_id": "", "aux_id": "a/One", "enabled": True},
            "comfyui-two": {"ver": "1.2.3", "cnr_id": "comfyui-two", "aux_id": None, "enabled": True},
            "three": {"ver": "nightly", "cnr_id": "three", "aux_id": 3, "enabled": False},
        }
    )

    assert found == (
        InstalledPack("One", URL, A),
        InstalledPack("comfyui-two", id="comfyui-two", version="1.2.3"),
        InstalledPack("three", id="three"),
    )


@pytest.mark.parametrize("raw", [[], 3, {"a": 1}, {"3": {"class_type": "X"}}])
def test_something_else_is_refused(raw: Any) -> None:
    with pytest.raises(CatalogueError, match=r"host\.json: no list of installed packs"):
        read(raw)


def test_what_is_no_json_is_refused() -> None:
    with pytest.raises(CatalogueError, match="not JSON"):
        read_host_packs(b"{", name="host.json")
