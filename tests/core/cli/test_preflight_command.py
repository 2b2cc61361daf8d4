"""`comfyfarm preflight`: folders, media, SARIF, packs; what one file lacks does not touch the others."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
from click.testing import Result

from comfyfarm.cli import main
from comfyfarm.lock.lockfile import Lock
from comfyfarm.outputs.provenance import Provenance
from fake_server.comfy import FakeComfy
from fake_server.comfy.extra_nodes import ExtraNodes

Command = Callable[..., Result]
Serving = Callable[..., tuple[FakeComfy, str]]
DATA = Path(__file__).parents[2] / "data"


def test_a_folder_is_looked_through_and_media_without_a_graph_are_passed_over(
    command: Command, picture: Path, tmp_path: Path
) -> None:
    shutil.copy(DATA / "carriers" / "tags.webm", tmp_path / "a.webm")
    shutil.copy(DATA / "carriers" / "bare.mp4", tmp_path / "input.mp4")
    told = command("preflight", tmp_path, "--json")

    reports = [json.loads(line) for line in told.stdout.splitlines()]
    assert [Path(one["file"]).name for one in reports] == ["a.webm", "picture.json"]
    assert "1 media file without a graph is passed over" in told.stderr
    assert told.exit_code == 0
    named = command("preflight", tmp_path / "input.mp4", "--json")
    assert named.exit_code == 1
    assert json.loads(named.stdout)["findings"][0]["code"] == "not_comfy_metadata"


_LOCK = {"version": 1, "models": [], "repos": [], "packs": []}
_PROVENANCE = {
    "format": 1,
    "job": "j",
    "batch": "b",
    "workflow_sha256": "0" * 64,
    "overrides": {},
    "models": [],
    "attempts": 1,
    "timings": {},
    "files": [],
}
_CLASS = {"input": {"required": {}}, "output": [], "python_module": "nodes"}
_SCHEMA = {"Own": _CLASS, "comfyfarm_folders": {"Own": {"file": ["loras"]}}}


def test_files_of_a_folder_that_are_no_workflows_are_passed_over(
    command: Command, picture: Path, tmp_path: Path
) -> None:
    others = {
        "lock": _LOCK,
        "provenance": _PROVENANCE,
        "schema": _SCHEMA,
        "models": {"models": [{}]},
        "x": [1],
    }
    for name, tree in others.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(tree))
    told = command("preflight", tmp_path)

    assert told.exit_code == 0
    first = ", ".join(str(tmp_path / f"{name}.json") for name in ("lock", "models", "provenance"))
    assert f"5 files that are no workflows are passed over: {first}, …" in told.stderr
    assert told.stderr.splitlines()[-1] == "6 files: 0 with errors, 5 passed over"
    printed = command("preflight", tmp_path, "--json")
    assert [Path(json.loads(line)["file"]).name for line in printed.stdout.splitlines()] == ["picture.json"]
    assert "with errors" not in printed.stderr


def test_what_may_have_been_a_workflow_stays_a_report(command: Command, tmp_path: Path) -> None:
    files = {"empty": "", "broken": "{", "node": '{"1": {"inputs": {}}}', "nothing": "{}"}
    for name, text in files.items():
        (tmp_path / f"{name}.json").write_text(text)
    told = command("preflight", tmp_path)

    assert told.exit_code == 1
    assert told.stderr.splitlines() == ["4 files: 4 with errors"]


@pytest.mark.parametrize(
    ("tree", "kind"),
    [
        (_SCHEMA, "is a saved node schema"),
        ({**_SCHEMA, "prompt": _CLASS}, "is a saved node schema"),
        (_PROVENANCE, "is the record of a rendered job"),
        ({**_LOCK, "python": {"inputs": {}}}, "is a lock"),
        ({"models": []}, "is a catalogue"),
    ],
)
def test_a_named_file_that_is_no_workflow_is_said_to_be_what_it_is(
    command: Command, tmp_path: Path, tree: object, kind: str
) -> None:
    file = tmp_path / "s.json"
    file.write_text(json.dumps(tree))
    told = command("preflight", file, "--json")
    (finding,) = json.loads(told.stdout)["findings"]

    assert (told.exit_code, finding["code"], finding["severity"]) == (1, "not_a_workflow", "error")
    assert finding["message"].startswith(kind)


def test_the_record_of_a_job_has_the_keys_that_it_is_known_by() -> None:
    assert Provenance.model_fields.keys() >= _PROVENANCE.keys()
    assert Lock.model_fields.keys() >= _LOCK.keys()


def test_one_sarif_log_holds_all_files(command: Command, picture: Path, tmp_path: Path) -> None:
    (tmp_path / "bad.json").write_text("{")
    told = command("preflight", tmp_path, "--sarif")
    log = json.loads(told.stdout)

    assert told.exit_code == 1
    assert [one["ruleId"] for one in log["runs"][0]["results"]] == ["bad_json"]
    assert command("preflight", picture, "--sarif", "--json").exit_code == 2


def test_a_name_that_is_no_utf8_costs_no_report(command: Command, picture: Path, tmp_path: Path) -> None:
    odd = os.fsdecode(os.fsencode(tmp_path) + b"/bad\xff.json")
    shutil.copy(picture, odd)
    printed = command("preflight", tmp_path, "--json")
    log = command("preflight", tmp_path, "--sarif")

    assert [Path(json.loads(line)["file"]).name for line in printed.stdout.splitlines()] == [
        "bad\\udcff.json",
        "picture.json",
    ]
    assert (printed.exit_code, log.exit_code) == (0, 0)
    json.loads(log.stdout.encode())


def test_a_report_for_people_says_alike_things_once(command: Command, tmp_path: Path) -> None:
    graph = {str(n): {"class_type": "OwnNode", "inputs": {}} for n in range(9)}
    file = tmp_path / "w.json"
    file.write_text(json.dumps(graph))
    told = command("preflight", file)

    assert told.exit_code == 1
    assert told.stdout.count("unknown_class") == 1
    assert "node 4 OwnNode.class_type: " in told.stdout
    assert "… and 4 more like these" in told.stdout
    assert f"{file}: api, 9 nodes, 9 errors" in told.stdout


def test_a_class_map_says_which_pack_has_a_class(command: Command, tmp_path: Path) -> None:
    file, node_map = tmp_path / "w.json", tmp_path / "map.json"
    file.write_text(json.dumps({"1": {"class_type": "OwnNode", "inputs": {}}}))
    node_map.write_text(json.dumps({"https://github.com/u/own-nodes": [["OwnNode"], {}]}))
    told = command("preflight", file, "--node-map", node_map, "--json")

    (pack,) = json.loads(told.stdout)["packs"]
    assert pack == {
        "class_type": "OwnNode",
        "pack": "own-nodes",
        "url": "https://github.com/u/own-nodes",
        "commit": None,
        "source": "node_map",
    }


def test_the_nearest_project_file_says_what_is_let_in(command: Command, picture: Path) -> None:
    (picture.parent / "comfyfarm.toml").write_text('[policy]\nallow_classes = ["EmptyImage"]\n')
    told = command("preflight", picture, "--json")

    assert told.exit_code == 1
    assert [f["code"] for f in json.loads(told.stdout)["findings"]] == ["class_not_allowed"]


def test_a_server_says_where_its_own_loaders_look(command: Command, serving: Serving, tmp_path: Path) -> None:
    models = tmp_path / "models"
    for folder, name in (("checkpoints", "c.safetensors"), ("loras", "l.safetensors")):
        (models / folder).mkdir(parents=True)
        (models / folder / name).write_bytes(b"x")
    own = {
        "input": {"required": {"file": [["l.safetensors"], {}]}},
        "output": [],
        "output_node": True,
        "python_module": "custom_nodes.own-pack",
    }
    _, url = serving(models_dir=models, extra_nodes=ExtraNodes(classes={"OwnLoader": own}))
    file = tmp_path / "w.json"
    file.write_text(json.dumps({"1": {"class_type": "OwnLoader", "inputs": {"file": "l.safetensors"}}}))
    told = command("preflight", file, "--schema-from", url, "--json")
    report = json.loads(told.stdout)

    assert [(one["folder"], one["path"]) for one in report["references"]] == [("loras", "l.safetensors")]
    assert report["unclassified"] == []


def test_a_schema_that_is_none_is_said_for_each_file_as_json_too(
    command: Command, picture: Path, tmp_path: Path
) -> None:
    (tmp_path / "s.json").write_text("[]")
    told = command("preflight", picture, picture, "--schema", tmp_path / "s.json", "--json")
    codes = [[one["code"] for one in json.loads(line)["findings"]] for line in told.stdout.splitlines()]

    assert (told.exit_code, codes) == (1, [["bad_schema"], ["bad_schema"]])


@pytest.mark.parametrize("form", ["--json", "--sarif", None])
def test_a_folder_with_nothing_in_it_does_not_pass(
    command: Command, picture: Path, tmp_path: Path, form: str | None
) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "media").mkdir()
    shutil.copy(DATA / "carriers" / "bare.mp4", tmp_path / "media" / "input.mp4")
    forms = [form] if form else []
    told = command("preflight", picture, tmp_path / "empty", *forms)
    media = command("preflight", tmp_path / "media", *forms)

    assert (told.exit_code, told.stdout, media.exit_code, media.stdout) == (2, "", 2, "")
    assert "no .json file in it" in told.stderr
    assert "no file with a graph" in media.stderr


@pytest.mark.parametrize("answer", [b"<html>", b"[]", b'{"error": {}}'])
def test_a_server_that_answers_garbage_is_at_fault_itself(
    command: Command, picture: Path, tmp_path: Path, answer: bytes
) -> None:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_words: object) -> None:
            """Quiet."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        told = command(
            "preflight", picture, "--schema-from", f"http://127.0.0.1:{server.server_port}", "--json"
        )
        server.shutdown()

    assert told.exit_code == 3
    assert "answered what ComfyUI would not" in told.stderr


def test_no_traceback_for_a_reader_that_went_away(picture: Path) -> None:
    program = Path(sys.executable).with_name("comfyfarm")
    call = f"{program} preflight {' '.join([str(picture)] * 50)} --json | head -1"
    done = subprocess.run(["bash", "-c", call], capture_output=True, text=True, env=dict(os.environ))

    assert "Traceback" not in done.stderr
    assert json.loads(done.stdout)["format"] == "api"


@pytest.mark.parametrize("name", ["preflight", "convert", "lock", "plan"])
def test_the_commands_start_without_what_only_servers_need(name: str) -> None:
    """What the cold start is paid with: none of these is needed to read a file."""
    assert name in main.list_commands(None)  # type: ignore[arg-type]
    heavy = "httpx sqlalchemy obstore websockets prefect fsspec aiohttp PIL"
    code = (
        f"import sys, importlib; importlib.import_module('comfyfarm.cli.{name}_command'); "
        f"print([m for m in '{heavy}'.split() if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "[]"
