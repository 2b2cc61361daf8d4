"""`comfyfarm lock verify`: what `lock make` would say of packs and policy, and what is counted."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

Command = Callable[..., Result]

PACK = "https://github.com/me/Mine"


@pytest.fixture
def lock(tmp_path: Path) -> Path:
    """A lock of `upscale` whose first model has a source, and whose second has none."""
    source = tmp_path / "a.pth"
    source.write_bytes(b"")
    empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    models = [
        {"folder": "upscale_models", "path": path, "sha256": empty, "size": 0, "sources": sources}
        for path, sources in (("sub/a.pth", [str(source)]), ("b.safetensors", []))
    ]
    file = tmp_path / "l"
    file.write_text(json.dumps({"version": 1, "models": models}))
    return file


@pytest.fixture
def own(upscale: Path) -> Path:
    """`upscale` with a node of a pack."""
    graph = json.loads(upscale.read_text()) | {"9": {"class_type": "MyNode", "inputs": {}}}
    upscale.write_text(json.dumps(graph))
    return upscale


def found(told: Result) -> dict[str, dict[str, Any]]:
    return {one["code"]: one for one in json.loads(told.stdout)["findings"]}


def test_only_what_was_looked_at_is_counted(command: Command, lock: Path, tmp_path: Path) -> None:
    told = command("lock", "verify", lock)

    assert told.exit_code == 0
    assert told.stderr.splitlines()[-1] == f"{lock}: 1 of 2 models as locked; 1 has no source to look at"
    assert "--against" in told.stderr
    (tmp_path / "models" / "upscale_models" / "sub").mkdir(parents=True)
    for path in ("sub/a.pth", "b.safetensors"):
        (tmp_path / "models" / "upscale_models" / path).write_bytes(b"")
    whole = command("lock", "verify", lock, "--against", tmp_path / "models")
    assert whole.stderr == f"{lock}: 2 models as locked\n"


def test_a_class_without_a_pack_is_said_and_a_known_pack_has_to_be_locked(
    command: Command, lock: Path, own: Path, tmp_path: Path
) -> None:
    words = ["lock", "verify", lock, own, "--json"]
    (tmp_path / "map.json").write_text(json.dumps({PACK: [["MyNode"], {}]}))
    unknown, mapped = command(*words), command(*words, "--node-map", tmp_path / "map.json")
    (tmp_path / "comfyfarm.toml").write_text(f'[packs]\n"MyNode" = "{PACK}"\n')
    chosen = command(*words)

    assert unknown.exit_code == 0
    assert found(unknown)["no_pack"]["severity"] == "warning"
    for told in (mapped, chosen):
        assert (told.exit_code, PACK in found(told)["not_locked"]["message"]) == (1, True)
    raw = json.loads(lock.read_text()) | {"packs": [{"name": "Mine", "url": PACK, "commit": "a" * 40}]}
    lock.write_text(json.dumps(raw))
    assert command(*words).exit_code == 0
    assert command("lock", "verify", lock, "--node-map", tmp_path / "map.json").exit_code == 2


def test_the_policy_holds_for_a_lock_that_was_made_before_it(
    command: Command, lock: Path, upscale: Path, tmp_path: Path
) -> None:
    text = '[policy]\nallow_classes = ["Up*", "Image*", "EmptyImage"]\nallow_pickle_sha256 = []\n'
    (tmp_path / "mine.toml").write_text(text)
    told = command("lock", "verify", lock, upscale, "--config", tmp_path / "mine.toml", "--json")

    assert told.exit_code == 1
    assert found(told).keys() >= {"class_not_allowed", "pickle_refused"}
    assert command("lock", "verify", lock, upscale).exit_code == 0


def test_near_names_stand_in_the_remedy(command: Command, lock: Path, upscale: Path) -> None:
    graph = json.loads(upscale.read_text())
    graph["4"]["inputs"]["model_name"] = "bb.safetensors"
    upscale.write_text(json.dumps(graph))
    one = found(command("lock", "verify", lock, upscale, "--json"))["not_locked"]

    assert one["message"].endswith("which is not locked")
    assert "near:" not in one["message"]
    assert "or correct the name: upscale_models/b.safetensors" in one["remedy"]


def test_a_workflow_that_cannot_be_read_leaves_the_json_whole(
    command: Command, lock: Path, tmp_path: Path
) -> None:
    (tmp_path / "w.json").write_text("{")
    told = command("lock", "verify", lock, tmp_path / "w.json", "--json")

    assert (told.exit_code, set(found(told))) == (1, {"no_source", "bad_json"})


def test_the_remedy_names_all_workflows_that_were_given(
    command: Command, lock: Path, upscale: Path, picture: Path
) -> None:
    lock.write_text('{"version": 1, "models": []}')
    one = found(command("lock", "verify", lock, picture, upscale, "--json"))["not_locked"]

    assert f"`comfyfarm lock {picture} {upscale} --catalog CATALOGUE -o {lock}`" in one["remedy"]
    assert "name every workflow" in one["remedy"]


def test_a_pack_that_was_missing_and_now_has_a_commit_is_not_locked(
    command: Command, lock: Path, own: Path, tmp_path: Path
) -> None:
    gap = {"kind": "pack", "name": "Mine", "reason": f"no commit of {PACK} is known"}
    lock.write_text(json.dumps(json.loads(lock.read_text()) | {"missing": [gap]}))
    config = tmp_path / "comfyfarm.toml"
    config.write_text(f'[packs]\n"MyNode" = "{PACK}"\n')
    before = command("lock", "verify", lock, own, "--json")
    config.write_text(f'[packs]\n"MyNode" = "{PACK}@{"b" * 40}"\n')
    now = command("lock", "verify", lock, own, "--json")

    assert (before.exit_code, "not_locked" in found(before)) == (0, False)
    assert (now.exit_code, "b" * 40 in found(now)["not_locked"]["message"]) == (1, True)


def test_a_place_that_does_not_exist_is_said_once_and_the_remedy_is_hydrate(
    command: Command, lock: Path, tmp_path: Path
) -> None:
    told = command("lock", "verify", lock, "--against", tmp_path / "nope")
    cache = command("lock", "verify", lock, "--cache", "--json")

    assert told.exit_code == 1
    assert told.stderr.count(f"{tmp_path / 'nope'} does not exist") == 1
    assert "comfyfarm hydrate" in found(cache)["file_missing"]["remedy"]
    (tmp_path / "nope" / "checkpoints").mkdir(parents=True)
    there = command("lock", "verify", lock, "--against", tmp_path / "nope", "--json")
    assert "no_such_place" not in found(there)
    assert "comfyfarm hydrate" in found(there)["file_missing"]["remedy"]
