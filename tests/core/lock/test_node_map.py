"""Class maps: as JSON, out of a wheel, and what is none."""

import contextlib
import io
import json
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from comfyfarm.errors import CatalogueError
from comfyfarm.lock import node_map
from comfyfarm.lock.node_map import read_node_map
from comfyfarm.workflow.packs.index import PackIndex, merged

ONE, TWO = "https://github.com/a/One", "https://github.com/b/two"
MAP = {
    ONE: [["X", "Y"], {"title_aux": "One", "preemptions": ["Y"]}],
    TWO + ".git": [["Y", "Z"], {"nodename_pattern": "^Two"}],
    "https://raw.githubusercontent.com/c/three/main/nodes.py": [["W"], {}],
    "no address": [["V"], {}],
}
LIST = {
    "custom_nodes": [
        {"id": "One-ID", "reference": ONE, "files": [ONE], "install_type": "git-clone"},
        {"id": "two", "reference": "https://example.org/page", "files": [TWO], "install_type": "git-clone"},
        {"reference": "https://github.com/d/four", "files": []},
        "garbage",
    ]
}


def archive(**members: Any) -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in members.items():
            text = content if isinstance(content, bytes) else json.dumps(content).encode()
            file.writestr(name.replace("__", "/").replace("_json", ".json").replace("_", "-"), text)
    return data.getvalue()


def as_bytes(raw: Any) -> bytes:
    return json.dumps(raw).encode()


def test_a_class_map_says_who_claims_a_class() -> None:
    index = read_node_map(as_bytes(MAP), name="map.json")

    assert index.claimants("X") == (ONE,)
    assert index.claimants("Z") == (TWO,)
    assert index.claimants("Twofold") == (TWO,)
    assert index.claimants("V") == ()
    assert len(index.repos) == 3


def test_a_preemption_goes_before_other_claims() -> None:
    assert read_node_map(as_bytes(MAP), name="map.json").claimants("Y") == (ONE,)


def test_a_list_of_packs_says_what_an_id_means() -> None:
    index = read_node_map(as_bytes(LIST), name="list.json")

    assert index.named("one-id") == (ONE,)
    assert index.named("TWO") == (TWO,)
    assert index.named("four") == ("https://github.com/d/four",)
    assert index.named("five") == ()


def test_a_wheel_is_known_by_its_content_and_gives_both() -> None:
    data = archive(pack__extension_node_map_json=MAP, pack__custom_node_list_json=LIST, pack__other_json=b"{")
    index = read_node_map(data, name="no-suffix")

    assert index.claimants("X") == (ONE,)
    assert index.named("one-id") == (ONE,)


def test_of_several_members_of_one_name_the_highest_counts() -> None:
    low = {TWO: [["X"], {}]}
    index = read_node_map(
        archive(a__b__extension_node_map_json=low, a__extension_node_map_json=MAP), name="w"
    )

    assert index.claimants("X") == (ONE,)


def test_two_maps_together_have_the_claims_of_both() -> None:
    other = read_node_map(as_bytes({TWO: [["X"], {}]}), name="other.json")

    assert merged([read_node_map(as_bytes(MAP), name="map.json"), other]).claimants("X") == (ONE, TWO)
    assert merged([]) == PackIndex()


def test_a_pattern_that_is_none_is_left_out() -> None:
    index = read_node_map(as_bytes({ONE: [["X"], {"nodename_pattern": "("}]}), name="map.json")

    assert index.patterns == ()
    assert index.claimants("X") == (ONE,)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"3",
        b'{"a": 1}',
        b'{"1": {"class_type": "X", "inputs": {}}}',
        b"\xff\xfe",
        b"[" * 100_000,
        b"PK\x03\x04 and no archive",
        archive(readme=b"x"),
        archive(extension_node_map_json=b"{"),
        archive(extension_node_map_json=MAP)[:-30],
    ],
    ids=range(11),
)
def test_what_is_no_class_map_is_refused_by_name(data: bytes) -> None:
    with pytest.raises(CatalogueError, match=r"maps\.json"):
        read_node_map(data, name="maps.json")


def test_an_archive_with_a_broken_member_is_refused() -> None:
    data = bytearray(archive(extension_node_map_json=MAP))
    data[60:80] = b"\0" * 20

    with pytest.raises(CatalogueError):
        read_node_map(bytes(data), name="w.whl")


@given(st.data())
def test_a_damaged_archive_is_read_or_refused(data: st.DataObject) -> None:
    whole = bytearray(archive(pack__extension_node_map_json=MAP, pack__custom_node_list_json=LIST))
    for _ in range(data.draw(st.integers(1, 4))):
        whole[data.draw(st.integers(4, len(whole) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(CatalogueError):
        read_node_map(bytes(whole), name="w.whl")


def test_a_member_that_unpacks_without_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_map, "MAP_LIMIT_BYTES", 100_000)
    bomb = archive(extension_node_map_json=b" " * 10_000_000)

    assert len(bomb) < 100_000
    with pytest.raises(CatalogueError, match="more than 100000 bytes"):
        read_node_map(bomb, name="w.whl")


def test_the_real_wheel_holds_what_is_measured_of_it() -> None:
    wheel = Path(sys.prefix) / "data" / "comfyui_manager-4.3-py3-none-any.whl"
    index = read_node_map(wheel.read_bytes(), name=wheel.name)

    assert len(index.classes) == 25_636
    assert len(index.patterns) == 33
    assert len(index.ids) == 1_240
    assert index.named("comfyui-impact-pack") == ("https://github.com/ltdrdata/ComfyUI-Impact-Pack",)
