"""`comfyfarm plan`: the facts of this machine, held against a lock."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

Command = Callable[..., Result]
Serving = Callable[..., Any]

DATA = b"x" * 1000


@pytest.fixture
def lock(tmp_path: Path) -> Path:
    """One model, one node pack."""
    source = tmp_path / "source.pt"
    source.write_bytes(DATA)
    model = {
        "folder": "vae", "path": "a/x.pt", "sha256": hashlib.sha256(DATA).hexdigest(), "size": len(DATA),
        "sources": [str(source)],
    }  # fmt: skip
    pack = {"name": "One", "url": "https://github.com/me/One", "commit": "a" * 40}
    file = tmp_path / "comfyfarm.lock"
    file.write_text(json.dumps({"version": 1, "models": [model], "packs": [pack], "comfyui": "0.27"}))
    return file


def plan(command: Command, *words: object) -> tuple[int, dict[str, Any]]:
    told = command("plan", *words, "--json")
    return told.exit_code, json.loads(told.stdout)


def codes(raw: dict[str, Any]) -> list[str]:
    return [finding["code"] for finding in raw["findings"] if finding["severity"] == "error"]


def test_a_plan_says_what_has_to_come_until_it_has(command: Command, lock: Path) -> None:
    code, before = plan(command, lock)
    assert (code, before["fits"], before["fetch_bytes"], len(before["fetch"])) == (0, True, 1000, 1)
    assert [pack["name"] for pack in before["install"]] == ["One"]
    assert command("hydrate", "--lock", lock).exit_code == 0

    code, after = plan(command, lock)
    assert (code, after["fetch_bytes"], after["reuse_bytes"]) == (0, 0, 1000)


def test_what_cannot_fit_is_exit_1_with_the_reason(command: Command, lock: Path) -> None:
    for words, expected in (
        (["--disk-gb", "0"], ["disk_full"]),
        (["--vram-gb", "1"], ["vram_short"]),
        (["--quota-gb", "0"], ["quota_short"]),
        (["--vram-gb", "0"], []),
        (["--disk-gb", "0", "--vram-gb", "0.5"], ["disk_full", "vram_short"]),
    ):
        code, raw = plan(command, lock, *words)
        assert (code, codes(raw)) == (1 if expected else 0, expected)


def test_pins_and_the_bounds_of_the_settings_count(
    command: Command, lock: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = "b" * 64
    blob = tmp_path / "cache" / "sha256" / "bb" / other
    blob.parent.mkdir(parents=True)
    blob.write_bytes(b"y" * 1500)
    monkeypatch.setenv("COMFYFARM_CACHE_QUOTA_GB", str(2000 / 2**30))

    code, raw = plan(command, lock)
    assert (code, raw["evict_bytes"]) == (0, 500)
    assert command("cache", "pin", other).exit_code == 0
    code, raw = plan(command, lock)
    assert (code, codes(raw)) == (1, ["quota_short"])
    assert "1.5 KiB are pinned or in use by others" in str(raw["findings"])
    assert plan(command, lock, "--quota-gb", "1")[0] == 0
    monkeypatch.setenv("COMFYFARM_CACHE_FREE_GB", "1e6")
    assert codes(plan(command, lock, "--quota-gb", "1")[1]) == ["disk_full"]


def test_a_plan_for_people_is_short(command: Command, lock: Path) -> None:
    told = command("plan", lock)

    assert told.exit_code == 0
    assert "this host: fits" in told.stdout
    assert "fetch   1000 bytes in 1 file; 0 bytes here already" in told.stdout
    assert "install One at aaaaaaaaaaaa from https://github.com/me/One" in told.stdout
    assert "VRAM    1.19 GiB at least, by estimate: vae/a/x.pt" in told.stdout


def test_files_of_others_are_in_the_way_and_our_own_links_are_not(
    command: Command, lock: Path, tmp_path: Path
) -> None:
    models = tmp_path / "models"
    (models / "vae" / "a").mkdir(parents=True)
    assert plan(command, lock, "--models-dir", models)[0] == 0
    (models / "vae" / "a" / "x.pt").write_bytes(DATA[::-1] + b"y")
    code, raw = plan(command, lock, "--models-dir", models)
    assert (code, codes(raw)) == (1, ["foreign_file"])
    (models / "vae" / "a" / "x.pt").write_bytes(b"y" * len(DATA))
    assert plan(command, lock, "--models-dir", models)[0] == 1
    (models / "vae" / "a" / "x.pt").unlink()
    (models / "vae" / "a" / "x.pt").symlink_to(models / "nowhere")
    assert plan(command, lock, "--models-dir", models)[0] == 1
    (models / "vae" / "a" / "x.pt").unlink()
    assert command("hydrate", "--lock", lock, "--link-into", models).exit_code == 0
    assert plan(command, lock, "--models-dir", models)[0] == 0
    assert command("plan", lock, "--models-dir", tmp_path / "none").exit_code == 2


def test_a_file_that_has_the_locked_content_already_is_neither_in_the_way_nor_fetched(
    command: Command, lock: Path, tmp_path: Path
) -> None:
    file = tmp_path / "models" / "vae" / "a" / "x.pt"
    file.parent.mkdir(parents=True)
    file.write_bytes(DATA)
    code, raw = plan(command, lock, "--models-dir", tmp_path / "models", "--disk-gb", "0")

    assert (code, raw["fetch_bytes"], raw["reuse_bytes"], raw["fetch"]) == (0, 0, len(DATA), [])
    (found,) = [one for one in raw["findings"] if one["code"] == "in_place"]
    assert (found["severity"], found["message"].split()[0]) == ("info", "vae/a/x.pt")
    assert "keep    1 file" in command("plan", lock, "--models-dir", tmp_path / "models").stdout
    assert file.read_bytes() == DATA


def test_a_workflow_in_place_of_the_lock_is_said_as_json_too(command: Command, picture: Path) -> None:
    told = command("plan", picture, "--json")
    raw = json.loads(told.stdout)

    assert (told.exit_code, raw["fits"]) == (1, False)
    assert "looks like a workflow" in raw["findings"][0]["message"]
    assert "the first argument is the lock" in told.stderr
    assert command("plan", "--server", "nourl", picture).exit_code == 2


def test_a_server_tells_its_gpu_and_version(command: Command, lock: Path, serving: Serving) -> None:
    _, url = serving()
    code, raw = plan(command, lock, "--server", url)

    assert (code, codes(raw)) == (0, [])
    assert command("plan", lock, "--server", "http://127.0.0.1:1").exit_code == 3


def test_installed_packs_are_left_alone(command: Command, lock: Path, tmp_path: Path) -> None:
    git = tmp_path / "nodes" / "One" / ".git"
    git.mkdir(parents=True)
    (git / "HEAD").write_text("a" * 40 + "\n")
    (git / "config").write_text('[remote "origin"]\n\turl = https://github.com/me/One.git\n')
    _, raw = plan(command, lock, "--custom-nodes", tmp_path / "nodes")

    assert (raw["install"], raw["change"]) == ([], [])


def test_what_is_no_lock_is_refused(command: Command, tmp_path: Path) -> None:
    assert command("plan", tmp_path / "none").exit_code == 1
    (tmp_path / "x").write_text("{}")
    assert command("plan", tmp_path / "x").exit_code == 1
