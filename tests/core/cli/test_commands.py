"""The subcommands: what they print, where, and how they exit."""

import csv
import hashlib
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import Result

from comfyfarm import __version__
from comfyfarm.app import app_dir
from comfyfarm.cli import main

Command = Callable[..., Result]
Serving = Callable[..., Any]


def test_help_names_every_command(command: Command) -> None:
    told = command("--help")

    assert told.exit_code == 0
    for name in (
        "preflight",
        "lock",
        "mirror",
        "hydrate",
        "render",
        "results",
        "health",
        "control",
        "app-dir",
    ):
        assert f"  {name} " in told.output
    assert "0 done" in told.output
    assert command("--version").output.strip() == f"comfyfarm, version {__version__}"


@pytest.mark.parametrize("name", main.list_commands(click.Context(main)))
def test_every_command_has_help(command: Command, name: str) -> None:
    told = command(name, "--help")

    assert told.exit_code == 0
    assert told.output.startswith("Usage: ")


def test_a_command_that_is_not_there_is_wrong_usage(command: Command) -> None:
    assert command("convert", "w.json").exit_code == 2
    assert command("frobnicate").exit_code == 2
    assert command("render").exit_code == 2


def test_app_dir_is_printed(command: Command) -> None:
    assert command("app-dir").stdout.strip() == str(app_dir())


# --- preflight ----------------------------------------------------------------------------------


def test_preflight_tells_what_a_workflow_needs(command: Command, upscale: Path) -> None:
    told = command("preflight", upscale, "--json")
    (report,) = [json.loads(line) for line in told.stdout.splitlines()]

    assert told.exit_code == 0
    assert set(report) == {
        "file", "format", "findings", "references", "unclassified", "packs", "assets",
    }  # fmt: skip
    assert (report["file"], report["format"]) == (str(upscale), "api")
    assert [(one["folder"], one["path"]) for one in report["references"]] == [
        ("upscale_models", "sub/a.pth"),
        ("upscale_models", "b.safetensors"),
    ]
    assert set(report["references"][0]) == {
        "node", "class_type", "input", "name", "folder", "path", "kind", "active",
    }  # fmt: skip


def test_preflight_prints_its_json_also_when_it_fails(
    command: Command, picture: Path, tmp_path: Path
) -> None:
    bad = tmp_path / "bad.json"
    graph = json.loads(picture.read_text())
    graph["1"]["inputs"]["width"] = 0
    bad.write_text(json.dumps(graph))
    (tmp_path / "none.json").write_text("{")
    told = command("preflight", picture, bad, tmp_path / "none.json", "--json")
    reports = [json.loads(line) for line in told.stdout.splitlines()]

    assert told.exit_code == 1
    assert [any(one["severity"] == "error" for one in report["findings"]) for report in reports] == [
        False,
        True,
        True,
    ]
    found = next(one for one in reports[1]["findings"] if one["severity"] == "error")
    assert set(found) == {"code", "severity", "node", "field", "message", "remedy"}
    assert (found["node"], found["field"]) == ("1", "width")


def test_preflight_reads_folders_and_is_readable(command: Command, upscale: Path, tmp_path: Path) -> None:
    told = command("preflight", tmp_path)

    assert told.exit_code == 0
    assert "upscale_models/sub/a.pth" in told.stdout
    assert "→" not in told.stdout
    (tmp_path / "empty").mkdir()
    assert "no .json file" in command("preflight", tmp_path / "empty").stderr


def test_preflight_against_a_live_server_misses_what_it_has_not(
    command: Command, serving: Serving, upscale: Path
) -> None:
    fake, url = serving()
    told = command("preflight", upscale, "--schema-from", url, "--json")
    assert told.exit_code == 1
    assert "not_in_list" in told.stdout

    for path in ("sub/a.pth", "b.safetensors"):
        file = fake.models_dir / "upscale_models" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"x")
    assert command("preflight", upscale, "--schema-from", url).exit_code == 0


def test_preflight_says_what_is_wrong_with_its_arguments(
    command: Command, picture: Path, tmp_path: Path
) -> None:
    missing = command("preflight", tmp_path / "gone.json", "--json")
    one_of_two = command("preflight", tmp_path / "gone.json", picture, "--json")
    both = command("preflight", picture, "--schema", picture, "--schema-from", "http://h:1")
    down = command("preflight", picture, "--schema-from", "http://127.0.0.1:1")

    assert missing.exit_code == 1
    assert json.loads(missing.stdout)["findings"][0]["message"].endswith("there is no such file")
    assert [json.loads(line)["format"] for line in one_of_two.stdout.splitlines()] == ["unknown", "api"]
    assert both.exit_code == 2
    assert down.exit_code == 3


# --- lock, mirror, hydrate ----------------------------------------------------------------------


def library(folder: Path) -> dict[str, bytes]:
    """Two models in a models folder of ComfyUI."""
    files = {"sub/a.pth": b"a" * 3000, "b.safetensors": b"b" * 5000}
    for path, data in files.items():
        file = folder / "upscale_models" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
    return files


def test_a_workflow_goes_from_lock_to_linked_models(command: Command, upscale: Path, tmp_path: Path) -> None:
    files = library(tmp_path / "library")
    lock = tmp_path / "comfyfarm.lock"

    locked = command("lock", "make", upscale, "--catalog", tmp_path / "library", "-o", lock)
    added = command(
        "mirror", "add", *sorted((tmp_path / "library").rglob("*.*")), "--mirror", tmp_path / "mirror"
    )
    here = command(
        "hydrate", "--lock", lock, "--mirror", tmp_path / "mirror", "--link-into", tmp_path / "models"
    )

    assert (locked.exit_code, locked.stdout) == (0, "")
    assert "2 models pinned" in locked.stderr
    digests = {hashlib.sha256(data).hexdigest() for data in files.values()}
    assert {line.split()[0] for line in added.stdout.splitlines()} == digests
    assert (here.exit_code, here.stdout) == (0, "")
    for path, data in files.items():
        assert (tmp_path / "models" / "upscale_models" / path).read_bytes() == data
    assert {path.name for path in (tmp_path / "cache" / "sha256").glob("*/*")} == digests


def test_lock_names_everything_that_is_missing_at_once(
    command: Command, upscale: Path, tmp_path: Path
) -> None:
    (tmp_path / "library").mkdir()
    lock = tmp_path / "comfyfarm.lock"
    told = command("lock", upscale, "--catalog", tmp_path / "library", "-o", lock)

    assert told.exit_code == 1
    assert "upscale_models/sub/a.pth" in told.stderr
    assert "upscale_models/b.safetensors" in told.stderr
    assert not lock.exists()


def test_lock_says_what_is_wrong_with_its_arguments(command: Command, upscale: Path, tmp_path: Path) -> None:
    library(tmp_path / "library")
    for words in (["verify", upscale], ["make"], ["diff"]):
        assert command("lock", *words, "--catalog", tmp_path / "library").exit_code == 2
    nowhere = command("lock", upscale, "--catalog", tmp_path / "library", "-o", tmp_path / "no" / "lock")
    assert nowhere.exit_code == 2
    assert "cannot be written" in nowhere.stderr
    assert command("lock", upscale, "--catalog", tmp_path / "gone.json").exit_code == 1


def test_hydrate_says_what_it_could_not_get(command: Command, upscale: Path, tmp_path: Path) -> None:
    library(tmp_path / "library")
    lock = tmp_path / "comfyfarm.lock"
    command("lock", upscale, "--catalog", tmp_path / "library", "-o", lock)
    told = command("hydrate", "--lock", lock, "--mirror", tmp_path / "empty")
    gone = command("hydrate", "--lock", tmp_path / "gone.lock")

    assert told.exit_code in {0, 3}, told.stderr
    assert gone.exit_code == 1
    assert not list((tmp_path / "cache").glob("quarantine/*"))


# --- health -------------------------------------------------------------------------------------


def test_one_healthy_server_is_enough(command: Command, serving: Serving) -> None:
    _, url = serving(device="NVIDIA GeForce RTX 4090")
    told = command("health", "--server", "http://127.0.0.1:1", "--server", url)
    lines = told.stdout.splitlines()

    assert told.exit_code == 0
    assert lines[0].startswith("http://127.0.0.1:1  unhealthy  ")
    assert lines[1].startswith(f"{url}  healthy  ComfyUI 0.27.0 on cuda:0 NVIDIA GeForce RTX 4090")
    assert "0 running, 0 pending" in lines[1]


@pytest.mark.parametrize("url", ["http://127.0.0.1:1", "garbage", "http://[bad"])
def test_without_a_healthy_server_the_exit_code_is_1(command: Command, url: str) -> None:
    told = command("health", "--server", url)

    assert told.exit_code == 1
    assert len(told.stdout.splitlines()) == 1
    assert command("health").exit_code == 2


# --- render --local and results -----------------------------------------------------------------


def test_a_render_prints_its_rows_and_the_same_call_runs_nothing(
    command: Command, serving: Serving, picture: Path, tmp_path: Path
) -> None:
    fake, url = serving()
    words = ["render", picture, "--set", "1.color=7", "--server", url, "--out", tmp_path / "out", "--local"]
    first = command(*words, "--json")
    (row,) = [json.loads(line) for line in first.stdout.splitlines()]

    assert first.exit_code == 0, first.stderr
    assert set(row) == {"id", "status", "server", "attempts", "seconds", "reason", "files"}
    assert (row["status"], row["server"], row["attempts"], row["reason"]) == ("succeeded", url, 1, "")
    (file,) = row["files"]
    data = (tmp_path / "out" / row["id"] / file["path"]).read_bytes()
    assert file == {"path": file["path"], "sha256": hashlib.sha256(data).hexdigest(), "size": len(data)}

    nobody = [word if word != url else "http://127.0.0.1:1" for word in words]
    again = command(*nobody, "--json")
    assert (again.exit_code, again.stdout) == (0, first.stdout)
    assert len(fake.log) == 1

    table = command(*words)
    assert table.exit_code == 0
    assert row["id"][:8] in table.stdout


def test_results_in_every_form(command: Command, serving: Serving, picture: Path, tmp_path: Path) -> None:
    _, url = serving()
    jobs = tmp_path / "jobs.jsonl"
    jobs.write_text("".join(f'{{"workflow": "picture.json", "set": {{"1.color": {n}}}}}\n' for n in range(2)))
    rendered = command(
        "render", jobs, "--server", url, "--out", tmp_path / "out", "--local", "--batch", "mine", "--json"
    )
    assert rendered.exit_code == 0, rendered.stderr

    assert command("results", "mine", "--json").stdout == rendered.stdout
    assert command("results", "--json").stdout == rendered.stdout
    table = list(csv.DictReader(io.StringIO(command("results", "mine", "--csv").stdout)))
    assert [json.loads(row["parameters"]) for row in table] == [{"1.color": 0}, {"1.color": 1}]
    assert [row["status"] for row in table] == ["succeeded"] * 2
    assert all("sha256:" in row["files"] for row in table)
    people = command("results").stdout
    assert people.startswith("mine\n")
    unknown = command("results", "other")
    assert unknown.exit_code == 2
    assert "it has: mine" in unknown.stderr


def test_results_without_a_ledger_say_how_to_name_one(command: Command) -> None:
    told = command("results")

    assert told.exit_code == 2
    assert "--ledger" in told.stderr


def test_a_dead_job_is_exit_1_and_the_same_call_says_so_again(
    command: Command, serving: Serving, picture: Path, tmp_path: Path
) -> None:
    fake, url = serving(script="error")
    words = ["render", picture, "--server", url, "--out", tmp_path / "out", "--local", "--json"]
    first, again = command(*words), command(*words)

    assert first.exit_code == again.exit_code == 1
    assert first.stdout == again.stdout
    assert json.loads(first.stdout)["reason"].startswith("node failed: ")
    assert len(fake.log) == 1


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--set", "1.colour=7"], 1, "no input 'colour'"),
        (["--set", "9.color=7"], 1, "no node '9'"),
        (["--set", "nonsense"], 1, "node.input=value"),
        (["--set", "1.width=0"], 1, "width"),
        (["--lock", "gone.lock"], 1, "gone.lock"),
        (["--ledger", "mysql://h/db"], 2, "mysql"),
        (["--server", "127.0.0.1:8188"], 2, "no address of a server"),
    ],
)
def test_what_is_wrong_with_a_call_is_said_before_anything_starts(
    command: Command, serving: Serving, picture: Path, tmp_path: Path, words: list[str], code: int, said: str
) -> None:
    fake, url = serving()
    told = command("render", picture, "--out", tmp_path / "out", "--local", *words, "--server", url)

    assert told.exit_code == code
    assert said in told.stderr
    assert "Traceback" not in told.stderr
    assert told.stdout == ""
    assert fake.log == []
    assert not (tmp_path / "out").exists()


def test_no_server_that_answers_is_try_later(command: Command, picture: Path, tmp_path: Path) -> None:
    told = command("render", picture, "--server", "http://127.0.0.1:1", "--out", tmp_path / "out", "--local")

    assert told.exit_code == 3
    assert "127.0.0.1:1" in told.stderr


def test_a_known_id_with_other_content_is_exit_2_and_prints_no_rows(
    command: Command, serving: Serving, picture: Path, tmp_path: Path
) -> None:
    _, url = serving()
    jobs = tmp_path / "jobs.jsonl"
    jobs.write_text('{"id": "00000000-0000-4000-8000-000000000001", "workflow": "picture.json"}\n')
    words = [
        "render",
        jobs,
        "--server",
        url,
        "--out",
        tmp_path / "out",
        "--local",
        "--json",
        "--batch",
        "one",
    ]
    assert command(*words).exit_code == 0

    other = command(*words, "--set", "1.color=9")
    elsewhere = command(*[word if word != "one" else "two" for word in words])

    for told in (other, elsewhere):
        assert told.exit_code == 2
        assert "00000000-0000-4000-8000-000000000001" in told.stderr
        assert told.stdout == ""


def test_missing_models_are_exit_1_and_all_named(
    command: Command, serving: Serving, upscale: Path, tmp_path: Path
) -> None:
    fake, url = serving()
    words = ["render", upscale, "--server", url, "--out", tmp_path / "out", "--local"]
    unlocked = command(*words)
    library(tmp_path / "library")
    command("lock", upscale, "--catalog", tmp_path / "library", "-o", tmp_path / "comfyfarm.lock")
    unplaced = command(*words)

    assert unlocked.exit_code == unplaced.exit_code == 1
    assert f"comfyfarm lock {upscale}" in unlocked.stderr
    for told in (unlocked, unplaced):
        assert "upscale_models/sub/a.pth" in told.stderr
        assert "upscale_models/b.safetensors" in told.stderr
    assert fake.log == []


def test_with_a_models_folder_the_files_are_brought(
    command: Command, serving: Serving, upscale: Path, tmp_path: Path
) -> None:
    library(tmp_path / "library")
    command("lock", upscale, "--catalog", tmp_path / "library", "-o", tmp_path / "comfyfarm.lock")
    _, url = serving(models_dir=tmp_path / "models")
    told = command(
        "render", upscale, "--server", url, "--out", tmp_path / "out", "--models-dir", tmp_path / "models",
        "--local", "--json",
    )  # fmt: skip

    assert told.exit_code == 0, told.stderr
    assert json.loads(told.stdout)["status"] == "succeeded"
