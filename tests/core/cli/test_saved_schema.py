"""Node classes saved with a lock: the same whatever files a server has, and good to check against."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from comfyfarm.workflow.schema import NodeSchema
from fake_server.comfy import FakeComfy
from fake_server.comfy.extra_nodes import ExtraNodes

Command = Callable[..., Result]
Serving = Callable[..., tuple[FakeComfy, str]]


@pytest.fixture
def two_servers(serving: Serving, tmp_path: Path) -> list[str]:
    """Two servers of one node pack, with different models, whose loader no shipped map knows."""
    urls = []
    for host, names in (("one", ("l.safetensors", "m.safetensors")), ("two", ("other.safetensors",))):
        models = tmp_path / host
        for folder in ("checkpoints", "loras"):
            (models / folder).mkdir(parents=True)
        (models / "checkpoints" / "c.safetensors").write_bytes(b"c")
        for name in names:
            (models / "loras" / name).write_bytes(name.encode())
        own = {
            "input": {"required": {"file": [list(names), {"default": names[0]}], "way": [["a", "b"], {}]}},
            "output": [list(names)],
            "output_node": True,
            "python_module": "custom_nodes.own-pack",
        }
        urls.append(serving(models_dir=models, extra_nodes=ExtraNodes(classes={"OwnLoader": own}))[1])
    return urls


@pytest.fixture
def workflow(tmp_path: Path) -> Path:
    """A workflow with that loader."""
    file = tmp_path / "w.json"
    inputs = {"file": "l.safetensors", "way": "a"}
    file.write_text(json.dumps({"1": {"class_type": "OwnLoader", "inputs": inputs}}))
    return file


def make(command: Command, workflow: Path, url: str, tmp_path: Path, *words: object) -> dict[str, Any]:
    """The lock that is made against this server."""
    catalogue = ["--catalog", tmp_path / "one"]
    told = command("lock", workflow, *catalogue, "--schema-from", url, "-o", tmp_path / "l", *words)
    assert told.exit_code == 0, told.stderr
    lock: dict[str, Any] = json.loads((tmp_path / "l").read_text())
    return lock


def test_servers_of_one_pack_and_other_files_have_one_digest(
    command: Command, two_servers: list[str], workflow: Path, tmp_path: Path
) -> None:
    one, two = (make(command, workflow, url, tmp_path)["schema_sha256"] for url in two_servers)
    bare = [_object_info(url) for url in two_servers]  # as a render has it: nobody probed the folders

    assert one == two
    assert {schema.sha256 for schema in bare} == {one}
    assert bare[0].offers_sha256 != bare[1].offers_sha256
    assert NodeSchema.shipped().sha256 != one


def test_a_saved_schema_is_that_of_the_lock_and_places_models_as_the_server_did(
    command: Command, two_servers: list[str], workflow: Path, tmp_path: Path
) -> None:
    saved = tmp_path / "schema.json"
    lock = make(command, workflow, two_servers[0], tmp_path, "--save-schema", saved)
    schema = NodeSchema.from_object_info(saved.read_bytes(), name="saved")
    told = command("preflight", workflow, "--schema", saved, "--json")
    report = json.loads(told.stdout)

    assert schema.sha256 == lock["schema_sha256"]
    assert "safetensors" not in saved.read_text()
    assert schema.offered("OwnLoader", "way") == ("a", "b")
    assert told.exit_code == 0, told.stdout
    assert [(one["folder"], one["path"]) for one in report["references"]] == [("loras", "l.safetensors")]
    verified = command("lock", "verify", tmp_path / "l", workflow, "--schema", saved, "--json")
    assert "schema_differs" not in verified.stdout
    assert (
        command(
            "lock", workflow, "--catalog", tmp_path / "one", "--schema", saved, "-o", tmp_path / "m"
        ).exit_code
        == 0
    )
    again = json.loads((tmp_path / "m").read_text())
    assert (again["models"], again["schema_sha256"]) == (lock["models"], lock["schema_sha256"])


def test_a_saved_schema_still_knows_what_is_wrong(
    command: Command, two_servers: list[str], workflow: Path, tmp_path: Path
) -> None:
    make(command, workflow, two_servers[0], tmp_path, "--save-schema", tmp_path / "schema.json")
    workflow.write_text(json.dumps({"1": {"class_type": "OwnLoader", "inputs": {"file": "x.safetensors"}}}))
    told = command("preflight", workflow, "--schema", tmp_path / "schema.json", "--json")

    assert told.exit_code == 1
    assert [one["field"] for one in json.loads(told.stdout)["findings"] if one["severity"] == "error"] == [
        "way"
    ]


def test_nothing_is_saved_when_no_lock_is_made(
    command: Command, picture: Path, upscale: Path, tmp_path: Path
) -> None:
    (tmp_path / "c.json").write_text("[]")
    words = ["--catalog", tmp_path / "c.json", "-o", tmp_path / "l", "--save-schema", tmp_path / "s.json"]

    assert command("lock", upscale, *words).exit_code == 1
    assert not (tmp_path / "s.json").exists()
    assert command("lock", picture, *words).exit_code == 0
    shipped = NodeSchema.from_object_info((tmp_path / "s.json").read_bytes(), name="s")
    assert shipped.sha256 == NodeSchema.shipped().sha256


def _object_info(url: str) -> NodeSchema:
    import httpx

    return NodeSchema.from_object_info(httpx.get(f"{url}/object_info").content, name=url, live=True)
