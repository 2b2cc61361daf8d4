"""`comfyfarm lock`: from workflows and whatever describes models to a lock, and back to the files."""

import hashlib
import json
import os
import struct
import subprocess
import zipfile
from collections.abc import Callable
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from click.testing import Result

from comfyfarm.lock.hash_store import Meter

Command = Callable[..., Result]
Serving = Callable[..., Any]

LONG_AGO = 1_700_000_000


def safetensors(size: int) -> bytes:
    """A sound file of so many bytes of weights."""
    header = json.dumps({"w": {"dtype": "F16", "shape": [size // 2], "data_offsets": [0, size]}}).encode()
    return struct.pack("<Q", len(header)) + header + bytes(size)


FILES = {"sub/a.pth": b"a" * 3000, "b.safetensors": safetensors(5000)}


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@pytest.fixture
def library(tmp_path: Path) -> Path:
    """A models folder that has what the workflow `upscale` names."""
    for path, data in FILES.items():
        file = tmp_path / "library" / "upscale_models" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
        os.utime(file, (LONG_AGO, LONG_AGO))
    return tmp_path / "library"


@pytest.fixture
def lock(command: Command, upscale: Path, library: Path, tmp_path: Path) -> Path:
    """The lock of `upscale`."""
    file = tmp_path / "comfyfarm.lock"
    told = command("lock", upscale, "--catalog", library, "-o", file)
    assert told.exit_code == 0, told.stderr
    return file


def catalogue(*paths: str, folder: str = "upscale_models") -> list[dict[str, Any]]:
    return [
        {"folder": folder, "path": path, "sha256": sha(FILES[path]), "size": len(FILES[path]), "sources": []}
        for path in paths
    ]


# --- make ----------------------------------------------------------------------------------------


def test_secrets_of_sources_and_snapshots_are_told_and_not_printed(
    command: Command, upscale: Path, tmp_path: Path
) -> None:
    rows = catalogue("sub/a.pth", "b.safetensors")
    rows[0]["sources"] = ["https://user:hunter2@127.0.0.1:9/a.pth"]
    listed, snapshot = tmp_path / "c.json", tmp_path / "snapshot.json"
    listed.write_text(json.dumps(rows))
    pips = {"torch==2.4.0": "", "x @ git+https://hunter2@github.com/me/x": ""}
    snapshot.write_text(json.dumps({"git_custom_nodes": {}, "pips": pips}))
    output = tmp_path / "made.lock"
    told = command("lock", upscale, "--catalog", listed, "--import", snapshot, "-o", output, "--json")
    raw = json.loads(output.read_text())

    assert told.exit_code == 0, told.stderr
    codes = {finding["code"] for finding in json.loads(told.stdout)["findings"]}
    assert {"secret_in_source", "package_not_pinned"} <= codes
    assert "hunter2" not in told.stdout + told.stderr
    assert raw["python"]["packages"] == ["torch==2.4.0"]
    assert "https://user:hunter2@127.0.0.1:9/a.pth" in [s for m in raw["models"] for s in m["sources"]]
    again = command("lock", "update", output, "--catalog", listed)
    assert "secret_in_source" in again.stderr
    assert "hunter2" not in again.stdout + again.stderr


def test_a_model_that_is_being_written_is_for_later(
    command: Command, upscale: Path, library: Path, lock: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write_on(_self: Meter, file: Path, _size_bytes: int) -> None:
        with file.open("r+b") as opened:
            opened.write(b"z")
        os.utime(file, ns=(next(times), next(times)))

    times = iter(range(10**18, 2 * 10**18))
    for file in library.rglob("*.*"):
        os.utime(file, (LONG_AGO + 5, LONG_AGO + 5))  # no hash is known of it
    monkeypatch.setattr(Meter, "add", write_on)
    told = command("lock", upscale, "--catalog", library, "-o", lock)
    verified = command("lock", "verify", lock)

    assert (told.exit_code, verified.exit_code) == (3, 3)
    assert "is being written" in told.stderr
    assert "source_silent" in verified.stderr


def test_a_lock_says_what_files_are_made_of_and_what_it_was_made_with(lock: Path, library: Path) -> None:
    raw = json.loads(lock.read_text())

    assert (raw["version"], raw["comfyui"], len(raw["schema_sha256"])) == (1, "0.27", 64)
    assert "missing" not in raw
    assert {model["path"]: model["sha256"] for model in raw["models"]} == {
        path: sha(data) for path, data in FILES.items()
    }
    headers = {model["path"]: model["header"] for model in raw["models"]}
    assert headers["sub/a.pth"] is None
    assert headers["b.safetensors"]["dtypes"] == {"F16": {"tensors": 1, "bytes": 5000}}
    assert raw["models"][0]["sources"] == [str(library / "upscale_models" / "b.safetensors")]


def test_several_catalogues_are_one(command: Command, upscale: Path, tmp_path: Path) -> None:
    for name, path in {"one.json": "sub/a.pth", "two.yaml": "b.safetensors"}.items():
        (tmp_path / name).write_text(json.dumps(catalogue(path)))
    words = ["lock", upscale, "--catalog", tmp_path / "one.json", "-o", tmp_path / "l"]

    assert "b.safetensors" in command(*words).stderr
    assert command(*words, "--catalog", tmp_path / "two.yaml").exit_code == 0


def test_one_name_of_two_contents_is_refused_until_the_lock_pins_one(
    command: Command, upscale: Path, library: Path, lock: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other.json"
    other.write_text(json.dumps([{**catalogue("b.safetensors")[0], "sha256": "0" * 64}]))
    words = ["lock", upscale, "--catalog", library, "--catalog", other]
    refused = command(*words, "-o", tmp_path / "new.lock", "--json")
    before = lock.read_bytes()

    assert refused.exit_code == 1
    (finding,) = [one for one in json.loads(refused.stdout)["findings"] if one["severity"] == "error"]
    assert (finding["code"], finding["node"], finding["field"]) == ("ambiguous_hash", "4", "model_name")
    assert not (tmp_path / "new.lock").exists()
    assert command(*words, "-o", lock).exit_code == 0
    assert lock.read_bytes() == before


def test_a_mirror_is_a_catalogue_as_folder_and_by_its_address(
    command: Command, upscale: Path, library: Path, tmp_path: Path
) -> None:
    mirror = tmp_path / "mirror"
    files = sorted(library.rglob("*.*"))
    assert command("mirror", "add", *files, "--mirror", mirror, "--folder", "upscale_models").exit_code == 0

    for address in (mirror, f"file://{mirror}"):
        told = command("lock", upscale, "--catalog", address, "-o", tmp_path / "l")
        raw = json.loads((tmp_path / "l").read_text())

        assert told.exit_code == 0, told.stderr
        assert "matched_by_basename" in told.stderr
        assert {(model["path"], model["sha256"]) for model in raw["models"]} == {
            (path, sha(data)) for path, data in FILES.items()
        }
        assert all(
            one["sources"][0].endswith(f"sha256/{one['sha256'][:2]}/{one['sha256']}") for one in raw["models"]
        )
        assert raw["models"][0]["header"]["tensors"] == 1
    cache = tmp_path / "elsewhere"
    assert command("hydrate", "--lock", tmp_path / "l", "--cache", cache).exit_code == 0


def test_extra_model_paths_are_a_catalogue(
    command: Command, upscale: Path, library: Path, tmp_path: Path
) -> None:
    (tmp_path / "extra.yaml").write_text("mine: {base_path: library, upscale_models: upscale_models}")
    told = command("lock", upscale, "--catalog", tmp_path / "extra.yaml", "-o", tmp_path / "l")

    assert told.exit_code == 0, told.stderr
    assert len(json.loads((tmp_path / "l").read_text())["models"]) == len(list(library.rglob("*.*")))


def test_only_what_the_workflow_names_is_hashed(
    command: Command, upscale: Path, library: Path, tmp_path: Path
) -> None:
    other = library / "upscale_models" / "other.pth"
    other.write_bytes(b"x")
    os.utime(other, (LONG_AGO, LONG_AGO))
    (library / "upscale_models" / "b.safetensors").rename(library / "upscale_models" / "bb.safetensors")
    told = command("lock", upscale, "--catalog", library, "-o", tmp_path / "l")
    kept = json.loads((tmp_path / "state" / "model-hashes.json").read_text())

    assert "near: upscale_models/bb.safetensors" in told.stderr
    assert list(kept.values()) == [sha(FILES["sub/a.pth"])]


def test_a_file_that_is_cut_off_is_locked_with_a_warning(
    command: Command, upscale: Path, library: Path, tmp_path: Path
) -> None:
    (library / "upscale_models" / "b.safetensors").write_bytes(FILES["b.safetensors"][:-1])
    told = command("lock", upscale, "--catalog", library, "-o", tmp_path / "l", "--json")
    (finding,) = json.loads(told.stdout)["findings"]

    assert told.exit_code == 0
    assert (finding["code"], finding["severity"]) == ("corrupt_header", "warning")
    assert "upscale_models/b.safetensors" in finding["message"]


def test_json_is_printed_also_when_names_are_missing(command: Command, upscale: Path, tmp_path: Path) -> None:
    (tmp_path / "c.json").write_text("[]")
    told = command("lock", "--json", upscale, "--catalog", tmp_path / "c.json", "-o", tmp_path / "l")
    raw = json.loads(told.stdout)

    assert told.exit_code == 1
    assert [finding["code"] for finding in raw["findings"]] == ["missing_model"] * 2
    assert raw["lock"] is None
    assert json.loads(command("lock", tmp_path / "no.json", "--json", "--catalog", "x").stdout)["findings"]


def test_a_file_that_is_called_like_a_subcommand_needs_the_make(
    command: Command, upscale: Path, library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "verify").write_bytes(upscale.read_bytes())

    assert command("lock", "make", "verify", "--catalog", library).exit_code == 0
    assert (tmp_path / "comfyfarm.lock").exists()
    assert command("lock", "verify").exit_code == 0
    assert command("lock").exit_code == 2
    assert command("lock", "make").exit_code == 2
    assert command("lock", upscale).exit_code == 2


def test_the_version_of_comfyui_is_that_of_whose_classes_were_used(
    command: Command, serving: Serving, upscale: Path, library: Path, tmp_path: Path
) -> None:
    fake, url = serving()
    for path, data in FILES.items():
        file = fake.models_dir / "upscale_models" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
    (tmp_path / "ComfyUI").mkdir()
    (tmp_path / "ComfyUI" / "comfyui_version.py").write_text('__version__ = "0.25.0"\n')
    (tmp_path / "ComfyUI" / "requirements.txt").write_text("")
    (tmp_path / "wheels").mkdir()
    checkout = ["--comfyui", tmp_path / "ComfyUI", "--wheelhouse", tmp_path / "wheels"]

    for words, version in (
        (["--schema-from", url], "0.27.0"),
        (["--comfyui-version", "1.2"], "1.2"),
        (checkout, "0.25.0"),
    ):
        told = command("lock", upscale, "--catalog", library, *words, "-o", tmp_path / "l")
        assert told.exit_code == 0, told.stderr
        assert json.loads((tmp_path / "l").read_text())["comfyui"] == version


def test_a_snapshot_brings_packs_and_python_in(
    command: Command, upscale: Path, library: Path, tmp_path: Path
) -> None:
    snapshot = {
        "comfyui": "a" * 40,
        "git_custom_nodes": {"https://github.com/me/One": {"hash": "b" * 40, "disabled": False}},
        "cnr_custom_nodes": {"two": "1.0.0"},
        "file_custom_nodes": [],
        "pips": {"x==1": ""},
    }
    (tmp_path / "s.json").write_text(json.dumps(snapshot))
    words = ["--catalog", library, "--import", tmp_path / "s.json", "-o", tmp_path / "l"]
    told = command("lock", upscale, *words)
    raw = json.loads((tmp_path / "l").read_text())

    assert told.exit_code == 0, told.stderr
    assert raw["packs"] == [{"name": "One", "url": "https://github.com/me/One", "commit": "b" * 40}]
    assert [(item["kind"], item["name"]) for item in raw["missing"]] == [("pack", "two")]
    assert raw["python"]["packages"] == ["x==1"]
    assert raw["comfyui"] == "a" * 40
    assert "1 not pinned" in told.stderr


def test_a_snapshot_tells_the_commits_that_a_workflow_does_not_say(
    command: Command, upscale: Path, library: Path, tmp_path: Path
) -> None:
    graph = json.loads(upscale.read_text())
    graph["9"] = {"class_type": "MyNode", "inputs": {}}
    (tmp_path / "w.json").write_text(json.dumps(graph))
    (tmp_path / "comfyfarm.toml").write_text('[packs]\n"MyNode" = "https://github.com/me/Mine"\n')
    snapshot = {"comfyui": None, "git_custom_nodes": {"https://github.com/Me/mine.git": {"hash": "b" * 40}}}
    (tmp_path / "s.json").write_text(json.dumps(snapshot))
    words = ["--catalog", library, "--import", tmp_path / "s.json", "-o", tmp_path / "l"]
    told = command("lock", tmp_path / "w.json", *words)

    assert (told.exit_code, "warning" in told.stderr) == (0, False), told.stderr
    assert [pack["commit"] for pack in json.loads((tmp_path / "l").read_text())["packs"]] == ["b" * 40]


def test_a_comfy_pack_is_catalogue_enough(command: Command, upscale: Path, tmp_path: Path) -> None:
    models = [
        {"filename": f"models/upscale_models/{path}", "size": len(data), "sha256": sha(data), "source": {}}
        for path, data in FILES.items()
    ]
    snapshot = {"python": "3.11", "comfyui": "a" * 40, "models": models, "custom_nodes": []}
    (tmp_path / "snapshot.json").write_text(json.dumps(snapshot))
    told = command("lock", upscale, "--import", tmp_path / "snapshot.json", "-o", tmp_path / "l")

    assert told.exit_code == 0, told.stderr
    assert len(json.loads((tmp_path / "l").read_text())["models"]) == 2


def test_what_can_be_no_import_is_refused_by_name(command: Command, upscale: Path, tmp_path: Path) -> None:
    (tmp_path / "x.bin").write_bytes(b"\x00\x01\x02")
    told = command("lock", upscale, "--import", tmp_path / "x.bin", "-o", tmp_path / "l")

    assert told.exit_code == 1
    assert "x.bin: nothing that can be imported" in told.stderr


def test_a_pickled_file_that_the_policy_does_not_allow_is_refused(
    command: Command, upscale: Path, library: Path, tmp_path: Path
) -> None:
    config = tmp_path / "comfyfarm.toml"
    words = ["lock", upscale, "--catalog", library, "-o", tmp_path / "l"]
    config.write_text("[policy]\nallow_pickle_sha256 = []\n")
    told = command(*words)

    assert told.exit_code == 1
    assert "upscale_models/sub/a.pth is a pickled file" in told.stderr
    config.write_text(f'[policy]\nallow_pickle_sha256 = ["{sha(FILES["sub/a.pth"])}"]\n')
    assert command(*words).exit_code == 0


# --- hints of the workflow itself ------------------------------------------------------------------


def with_hint(tmp_path: Path, **model: Any) -> Path:
    """A file of the editor that says where its model comes from."""
    nodes: list[dict[str, Any]] = [
        {
            "id": 1, "type": "UpscaleModelLoader", "mode": 0, "inputs": [],
            "widgets_values": ["b.safetensors"],
            "outputs": [{"name": "UPSCALE_MODEL", "type": "UPSCALE_MODEL", "links": [1]}],
            "properties": {"models": [{"name": "b.safetensors", "directory": "upscale_models", **model}]},
        },
        {
            "id": 2, "type": "EmptyImage", "mode": 0, "widgets_values": [8, 8, 1, 0], "inputs": [],
            "outputs": [{"name": "IMAGE", "type": "IMAGE", "links": [2]}],
        },
        {
            "id": 3, "type": "ImageUpscaleWithModel", "mode": 0,
            "inputs": [
                {"name": "upscale_model", "type": "UPSCALE_MODEL", "link": 1},
                {"name": "image", "type": "IMAGE", "link": 2},
            ],
            "outputs": [{"name": "IMAGE", "type": "IMAGE", "links": [3]}],
        },
        {
            "id": 4, "type": "SaveImage", "mode": 0, "widgets_values": ["up"],
            "inputs": [{"name": "images", "type": "IMAGE", "link": 3}], "outputs": [],
        },
    ]  # fmt: skip
    links = [
        [1, 1, 0, 3, 0, "UPSCALE_MODEL"], [2, 2, 0, 3, 1, "IMAGE"], [3, 3, 0, 4, 0, "IMAGE"],
    ]  # fmt: skip
    file = tmp_path / "ui.json"
    file.write_text(json.dumps({"nodes": nodes, "links": links, "version": 0.4, "last_node_id": 4}))
    return file


def test_what_the_editor_says_of_a_model_is_a_source_and_a_check(command: Command, tmp_path: Path) -> None:
    (tmp_path / "c.json").write_text(json.dumps(catalogue("b.safetensors")))
    words = ["--catalog", tmp_path / "c.json", "-o", tmp_path / "l"]
    plain = command("lock", with_hint(tmp_path, url="https://h/b"), *words)
    raw = json.loads((tmp_path / "l").read_text())
    wrong = command(
        "lock", with_hint(tmp_path, hash="0" * 64, hash_type="SHA256"), "-o", tmp_path / "m", *words[:2]
    )

    assert plain.exit_code == 0, plain.stderr
    assert raw["models"][0]["sources"] == ["https://h/b"]
    assert (wrong.exit_code, "ambiguous_hash" in wrong.stderr) == (1, True)


def test_a_hash_of_the_editor_is_enough_when_its_address_tells_the_size(
    command: Command, tmp_path: Path
) -> None:
    data = FILES["b.safetensors"]
    (tmp_path / "web").mkdir()
    (tmp_path / "web" / "b").write_bytes(data)
    (tmp_path / "c.json").write_text("[]")
    handler = partial(SimpleHTTPRequestHandler, directory=str(tmp_path / "web"))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        words = ["--catalog", tmp_path / "c.json", "-o", tmp_path / "l"]
        ui = with_hint(tmp_path, url=f"{url}/b", hash=sha(data), hash_type="SHA256")
        told = command("lock", ui, *words)
        fetched = command("hydrate", "--lock", tmp_path / "l")
        gone = command(
            "lock", with_hint(tmp_path, url=f"{url}/c", hash=sha(data), hash_type="SHA256"), *words
        )
        server.shutdown()
    (model,) = json.loads((tmp_path / "l").read_text())["models"]

    assert (told.exit_code, fetched.exit_code, gone.exit_code) == (0, 0, 1), told.stderr + fetched.stderr
    assert (model["sha256"], model["size"], model["sources"]) == (sha(data), len(data), [f"{url}/b"])


# --- verify, diff, update ----------------------------------------------------------------------------


def test_verify_finds_what_is_no_longer_as_locked(command: Command, lock: Path, library: Path) -> None:
    assert command("lock", "verify", lock).exit_code == 0
    assert command("lock", "verify", lock, "--against", library).exit_code == 0
    (library / "upscale_models" / "b.safetensors").write_bytes(b"c" * len(FILES["b.safetensors"]))
    (library / "upscale_models" / "sub" / "a.pth").unlink()

    for words in ([], ["--against", library]):
        told = command("lock", "verify", lock, "--json", *words)
        found = [(one["code"], one["message"]) for one in json.loads(told.stdout)["findings"]]

        assert told.exit_code == 1
        assert sorted(code for code, _ in found) == ["content_differs", "file_missing"]
        assert all("upscale_models/" in message for _, message in found)


def test_verify_looks_into_a_mirror_and_the_cache(
    command: Command, lock: Path, library: Path, tmp_path: Path
) -> None:
    none = command("lock", "verify", lock, "--against", tmp_path / "mirror")
    assert (none.exit_code, none.stderr.count("file_missing")) == (1, 2)
    assert command("lock", "verify", lock, "--cache").stderr.count("file_missing") == 2
    assert command("lock", "verify", lock, "--against", lock).exit_code == 2
    files = sorted(library.rglob("*.*"))
    command("mirror", "add", files[0], "--mirror", tmp_path / "mirror")
    half = command("lock", "verify", lock, "--against", tmp_path / "mirror")
    command("mirror", "add", *files, "--mirror", tmp_path / "mirror")
    command("hydrate", "--lock", lock)

    assert (half.exit_code, half.stderr.count("file_missing")) == (1, 1)
    assert command("lock", "verify", lock, "--against", tmp_path / "mirror", "--cache").exit_code == 0
    blob = next((tmp_path / "cache").glob("sha256/*/*"))
    blob.chmod(0o644)
    blob.write_bytes(b"z" * blob.stat().st_size)
    assert "content_differs" in command("lock", "verify", lock, "--cache").stderr


def test_verify_says_whether_the_lock_still_covers_workflows(
    command: Command, lock: Path, upscale: Path, picture: Path, tmp_path: Path
) -> None:
    graph = json.loads(upscale.read_text())
    graph["1"]["inputs"]["model_name"] = "new.pth"
    (tmp_path / "new.json").write_text(json.dumps(graph))
    told = command("lock", "verify", lock, upscale, tmp_path / "new.json", "--json")
    codes = [one["code"] for one in json.loads(told.stdout)["findings"]]
    idle = command("lock", "verify", lock, picture, "--json")

    assert command("lock", "verify", lock, upscale).exit_code == 0
    assert (told.exit_code, codes) == (1, ["not_locked"])
    assert idle.exit_code == 0
    assert [one["code"] for one in json.loads(idle.stdout)["findings"]] == ["unused_pin"] * 2


def test_verify_asks_addresses_and_one_source_that_answers_is_enough(command: Command, lock: Path) -> None:
    raw = json.loads(lock.read_text())
    raw["models"] = raw["models"][:1]
    raw["models"][0]["sources"].append("ftp://h/x")
    lock.write_text(json.dumps(raw))
    other = command("lock", "verify", lock, "--json")
    raw["models"][0]["sources"] = ["ftp://h/x"]
    lock.write_text(json.dumps(raw))
    silent = command("lock", "verify", lock, "--json")

    assert (silent.exit_code, other.exit_code) == (3, 0)
    assert [one["severity"] for one in json.loads(other.stdout)["findings"]] == ["warning"]
    assert [one["code"] for one in json.loads(silent.stdout)["findings"]] == ["source_silent"]


def test_diff_and_update_follow_the_files(
    command: Command, lock: Path, library: Path, tmp_path: Path
) -> None:
    old = tmp_path / "old.lock"
    raw = json.loads(lock.read_text()) | {"note": "mine"}
    old.write_text(json.dumps(raw))
    (library / "upscale_models" / "sub" / "a.pth").write_bytes(b"new")
    (library / "upscale_models" / "b.safetensors").write_bytes(safetensors(10))
    updated = command("lock", "update", old, "a.pth", "--catalog", library)
    told = command("lock", "diff", lock, old)
    as_json = command("lock", "diff", lock, old, "--json")
    after = json.loads(old.read_text())

    assert updated.exit_code == 0, updated.stderr
    assert "~ models upscale_models/sub/a.pth sha256" in updated.stdout
    assert after["note"] == "mine"
    assert {model["path"]: model["size"] for model in after["models"]}["b.safetensors"] > 5000
    assert told.exit_code == as_json.exit_code == 1
    assert "~ models upscale_models/sub/a.pth size: 3000 → 3" in told.stdout
    assert {(one["section"], one["field"]) for one in json.loads(as_json.stdout)["changes"]} >= {
        ("models", "sha256")
    }
    assert command("lock", "diff", old, old).exit_code == 0
    assert command("lock", "update", old, "--catalog", library).exit_code == 0
    assert json.loads(old.read_text())["models"][0]["header"]["bytes"] == 10


def test_an_update_that_lacks_a_name_writes_nothing(
    command: Command, lock: Path, library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    before = lock.read_bytes()
    (library / "upscale_models" / "sub" / "a.pth").write_bytes(b"new")
    (library / "upscale_models" / "b.safetensors").unlink()

    all_of_it = command("lock", "update", "--catalog", library)
    strange = command("lock", "update", "zzz", "--catalog", library)
    assert (all_of_it.exit_code, "upscale_models/b.safetensors" in all_of_it.stderr) == (1, True)
    assert (strange.exit_code, "zzz" in strange.stderr) == (1, True)
    assert lock.read_bytes() == before


# --- node packs ----------------------------------------------------------------------------------------


def test_packs_are_pinned_from_checkouts_or_said_to_be_missing(
    command: Command, upscale: Path, library: Path, tmp_path: Path
) -> None:
    graph = json.loads(upscale.read_text())
    graph["9"] = {"class_type": "MyNode", "inputs": {"x": 1}}
    workflow = tmp_path / "w.json"
    workflow.write_text(json.dumps(graph))
    (tmp_path / "comfyfarm.toml").write_text('[packs]\n"MyNode" = "https://github.com/me/Mine"\n')
    words = ["lock", workflow, "--catalog", library, "-o", tmp_path / "l"]
    without = command(*words)
    lacks = json.loads((tmp_path / "l").read_text())
    commit = _checkout(tmp_path / "nodes" / "Mine", "https://github.com/me/Mine.git")
    told = command(*words, "--custom-nodes", tmp_path / "nodes")
    raw = json.loads((tmp_path / "l").read_text())

    assert (without.exit_code, told.exit_code) == (0, 0), without.stderr + told.stderr
    assert (lacks["packs"], [(item["kind"], item["name"]) for item in lacks["missing"]]) == (
        [],
        [("pack", "Mine")],
    )
    assert raw["packs"] == [{"name": "Mine", "url": "https://github.com/me/Mine", "commit": commit}]
    assert "missing" not in raw


def test_a_class_of_two_packs_is_refused_beside_missing_models_until_one_is_chosen(
    command: Command, upscale: Path, library: Path, tmp_path: Path
) -> None:
    graph = json.loads(upscale.read_text()) | {"9": {"class_type": "MyNode", "inputs": {}}}
    workflow = tmp_path / "w.json"
    workflow.write_text(json.dumps(graph))
    urls = [f"https://github.com/{user}/Mine" for user in ("me", "you")]
    (tmp_path / "map.json").write_text(json.dumps({url: [["MyNode"], {}] for url in urls}))
    (tmp_path / "none.json").write_text("[]")
    words = ["lock", workflow, "--node-map", tmp_path / "map.json", "-o", tmp_path / "l"]
    both = command(*words, "--catalog", tmp_path / "none.json", "--json")
    refused = command(*words, "--catalog", library)
    codes = [one["code"] for one in json.loads(both.stdout)["findings"] if one["severity"] == "error"]

    assert (both.exit_code, refused.exit_code) == (1, 1)
    assert codes == ["ambiguous_pack", "missing_model", "missing_model"]
    assert "ambiguous_pack" in both.stderr
    assert all(url in refused.stderr for url in urls)
    (tmp_path / "comfyfarm.toml").write_text(f'[packs]\n"MyNode" = "{urls[1]}@{"c" * 40}"\n')
    assert command(*words, "--catalog", library).exit_code == 0
    assert json.loads((tmp_path / "l").read_text())["packs"] == [
        {"name": "Mine", "url": urls[1], "commit": "c" * 40}
    ]


def _checkout(folder: Path, url: str) -> str:
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("")
    git = [
        "git",
        "-C",
        str(folder),
        "-c",
        "user.name=x",
        "-c",
        "user.email=x@h",
        "-c",
        "commit.gpgsign=false",
    ]
    for words in (
        ["init", "-q"],
        ["add", "."],
        ["commit", "-q", "-m", "x"],
        ["remote", "add", "origin", url],
    ):
        subprocess.run([*git, *words], check=True)
    done = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True)
    return done.stdout.strip()


def test_a_lock_made_anew_says_which_pins_of_other_workflows_it_has_not(
    command: Command, lock: Path, picture: Path, library: Path
) -> None:
    words = ["--catalog", library, "-o", lock, "--json"]
    told = command("lock", picture, *words)
    (one,) = json.loads(told.stdout)["findings"]

    assert (told.exit_code, one["code"], json.loads(lock.read_text())["models"]) == (0, "pins_dropped", [])
    assert one["message"].startswith(f"2 models that {lock} pinned before are not in it any more: ")
    assert f"warning: pins_dropped: {one['message']}; name every workflow that shares it" in told.stderr
    assert json.loads(command("lock", picture, *words).stdout)["findings"] == []


def test_verify_says_which_packs_of_a_workflow_are_not_locked(command: Command, tmp_path: Path) -> None:
    (tmp_path / "c.json").write_text(json.dumps(catalogue("b.safetensors")))
    ui = with_hint(tmp_path)
    raw = json.loads(ui.read_text())
    raw["nodes"].append(
        {
            "id": 9, "type": "MyNode", "mode": 0, "inputs": [], "outputs": [], "widgets_values": [],
            "properties": {"aux_id": "me/Mine", "ver": "b" * 40},
        }
    )  # fmt: skip
    ui.write_text(json.dumps(raw))
    lock = tmp_path / "l"
    made = command("lock", ui, "--catalog", tmp_path / "c.json", "-o", lock)
    whole = command("lock", "verify", lock, ui, "--against", tmp_path / "mirror", "--json")
    assert (made.exit_code, whole.exit_code) == (0, 1), made.stderr
    kept = json.loads(lock.read_text())

    def codes() -> list[str]:
        told = command("lock", "verify", lock, ui, "--json")
        return [one["code"] for one in json.loads(told.stdout)["findings"]]

    assert [pack["commit"] for pack in kept["packs"]] == ["b" * 40]
    assert codes() == ["no_source"]
    lock.write_text(json.dumps({**kept, "packs": [{**kept["packs"][0], "commit": "c" * 40}]}))
    assert codes() == ["no_source", "pack_differs"]
    lock.write_text(json.dumps({**kept, "packs": [], "schema_sha256": "0" * 64}))
    assert codes() == ["no_source", "not_locked", "schema_differs"]


def test_the_python_environment_is_solved_and_a_conflict_names_both_packs(
    command: Command, upscale: Path, library: Path, tmp_path: Path
) -> None:
    for version in ("1.0", "2.0"):
        _wheel(tmp_path / "wheels", "farmdemo", version)
    (tmp_path / "ComfyUI").mkdir()
    (tmp_path / "ComfyUI" / "comfyui_version.py").write_text('__version__ = "0.27.1"\n')
    (tmp_path / "ComfyUI" / "requirements.txt").write_text("farmdemo>=1\n")
    for name, line in {"One": "farmdemo<2\n", "Two": "farmdemo>=2\n"}.items():
        (tmp_path / "nodes" / name).mkdir(parents=True)
        (tmp_path / "nodes" / name / "requirements.txt").write_text(line)
    graph = json.loads(upscale.read_text())
    unrelated = ["lock", upscale, "--catalog", library, "-o", tmp_path / "m"]
    workflow = tmp_path / "w.json"
    workflow.write_text(json.dumps(graph | {"9": {"class_type": "MyNode", "inputs": {}}}))
    words = ["lock", workflow, "--catalog", library, "-o", tmp_path / "l"]
    more = ["--comfyui", tmp_path / "ComfyUI"]
    more += ["--wheelhouse", tmp_path / "wheels", "--custom-nodes", tmp_path / "nodes"]
    refused = command(*words, *more, "--json")
    (finding,) = [one for one in json.loads(refused.stdout)["findings"] if one["severity"] == "error"]

    # What no node needs does not count; what a class may need does, while its pack is not known.
    assert command(*unrelated, *more).exit_code == 0
    assert (refused.exit_code, finding["code"]) == (1, "environment_conflict")
    assert all(word in finding["message"] for word in ("One", "farmdemo<2", "Two", "farmdemo>=2"))
    assert "Two is counted because the pack of 'MyNode' is not known" in finding["message"]
    assert "--node-map" in finding["remedy"]
    assert not (tmp_path / "l").exists()
    (tmp_path / "nodes" / "Two" / "requirements.txt").write_text("")
    assert command(*words, *more).exit_code == 0
    (pin,) = json.loads((tmp_path / "l").read_text())["python"]["requirements"]
    assert (pin["name"], pin["version"], len(pin["hashes"])) == ("farmdemo", "1.0", 1)


def _wheel(folder: Path, name: str, version: str) -> None:
    folder.mkdir(exist_ok=True)
    info = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")
