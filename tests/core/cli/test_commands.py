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
    assert "pickle" in told.stdout
    assert "→ use a safetensors file" in told.stdout
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


@pytest.mark.parametrize("url", ["127.0.0.1:18188", "garbage", "http://[::1", "http://u:pa/hunter2@h:1"])
def test_what_is_no_address_of_a_server_is_wrong_usage(command: Command, url: str) -> None:
    told = command("health", "--server", "http://127.0.0.1:1", "--server", url)

    assert (told.exit_code, told.stdout) == (2, "")
    assert "write one such as http://127.0.0.1:8188" in told.stderr
    assert "hunter2" not in told.stderr


def test_without_a_healthy_server_the_exit_code_is_1(command: Command) -> None:
    told = command("health", "--server", "http://127.0.0.1:1")

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
    assert "nothing has been rendered here yet" in told.stderr


@pytest.mark.parametrize("words", [["results"], ["dead-letters", "list"], ["dead-letters", "show", "--all"]])
def test_whoever_only_reads_makes_no_ledger(command: Command, tmp_path: Path, words: list[str]) -> None:
    told = command(*words, "--ledger", f"sqlite:///{tmp_path}/new/x.db")

    assert told.exit_code == 2
    assert f"there is no file {tmp_path}/new/x.db" in told.stderr
    assert "four slashes" in told.stderr
    assert not (tmp_path / "new").exists()


def test_results_of_a_ledger_without_a_batch_say_so(command: Command, tmp_path: Path) -> None:
    (tmp_path / "x.db").touch()

    told = command("results", "--ledger", f"sqlite:///{tmp_path}/x.db")

    assert told.exit_code == 2
    assert f"nothing has been rendered yet: the ledger sqlite:///{tmp_path}/x.db has no batch" in told.stderr


@pytest.mark.parametrize("password", ["pa/hunter2", "pa#hunter2", "pa?hunter2", "p@hunter2"])
@pytest.mark.parametrize("scheme", ["mysql", "postgresql"])
def test_no_password_of_a_ledger_is_printed(command: Command, scheme: str, password: str) -> None:
    told = command("results", "--ledger", f"{scheme}://u:{password}@127.0.0.1:1/db?colour=red")

    assert told.exit_code == 2
    assert "hunter2" not in told.output


def test_no_password_of_a_workflow_is_printed(command: Command) -> None:
    told = command("preflight", "http://u:pa/hunter2@127.0.0.1:1/w.json")

    assert told.exit_code in {1, 3}
    assert "hunter2" not in told.output


def test_a_dead_job_is_exit_1_and_the_same_call_says_so_again(
    command: Command, serving: Serving, picture: Path, tmp_path: Path
) -> None:
    fake, url = serving(script="error")
    words = ["render", picture, "--server", url, "--out", tmp_path / "out", "--local", "--json"]
    first, again = command(*words), command(*words)

    assert first.exit_code == again.exit_code == 1
    for told in (first, again):
        assert told.stderr.splitlines()[-1] == "1 job is dead: see comfyfarm dead-letters list --local"
    assert first.stdout == again.stdout
    assert json.loads(first.stdout)["reason"].startswith("node failed: ")
    assert len(fake.log) == 1


def test_dead_jobs_are_counted_and_the_ledgers_address_is_not_repeated(
    command: Command, serving: Serving, picture: Path, tmp_path: Path
) -> None:
    _, url = serving(script="error,ok,error")
    jobs = tmp_path / "jobs.jsonl"
    jobs.write_text("".join(f'{{"workflow": "picture.json", "set": {{"1.color": {n}}}}}\n' for n in range(3)))
    ledger = f"sqlite:///{tmp_path}/l.db"

    told = command("render", jobs, "--server", url, "--out", tmp_path / "out", "--local", "--ledger", ledger)

    assert told.exit_code == 1
    last = told.stderr.splitlines()[-1]
    assert last == "2 jobs are dead: see comfyfarm dead-letters list with the same --ledger"
    assert len(command("dead-letters", "list", "--ledger", ledger, "--json").stdout.splitlines()) == 2


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--set", "1.colour=7"], 1, "no input 'colour'"),
        (["--set", "9.color=7"], 1, "no node '9'"),
        (["--set", "nonsense"], 2, "node.input=value"),
        (["--set", "color=3"], 2, "names no input"),
        (["--set", "1.color"], 2, "has no value"),
        (["--out", "o\udcff"], 2, "'o\\udcff': is no valid UTF-8"),
        (["--batch", "b\udcff"], 2, "'b\\udcff': is no valid UTF-8"),
        (["--cache", "c\udcff"], 2, "c\\udcff': is no valid UTF-8"),
        (["--server", "http://u:pa/ssw0rd@h:1"], 2, "http://***@h:1"),
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


# --- the machine at fault ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("COMFYFARM_STATE_DIR", "{folder}/file"),
        ("COMFYFARM_STATE_DIR", "{folder}/file/below"),
        ("COMFYFARM_STATE_DIR", "/proc/comfyfarm"),
        ("COMFYFARM_GRACE_S", "abc"),
        ("COMFYFARM_GRACE_S", "-1"),
    ],
)
@pytest.mark.parametrize("more", [["--local"], []])
def test_a_setting_that_cannot_be_used_is_one_line(
    command: Command,
    picture: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    variable: str,
    value: str,
    more: list[str],
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    monkeypatch.setenv("PREFECT_HOME", str(tmp_path / "prefect"))
    monkeypatch.setenv(variable, value.format(folder=tmp_path))

    told = command("render", picture, "--server", "http://127.0.0.1:1", "--out", tmp_path / "out", *more)

    assert (told.exit_code, told.stdout) == (2, "")
    assert told.stderr.count("\n") == 1
    assert value.format(folder=tmp_path) in told.stderr


def test_a_cache_that_is_a_file_is_wrong_usage(command: Command, upscale: Path, tmp_path: Path) -> None:
    library(tmp_path / "library")
    lock = tmp_path / "comfyfarm.lock"
    command("lock", upscale, "--catalog", tmp_path / "library", "-o", lock)
    command("mirror", "add", *(tmp_path / "library").rglob("*.*"), "--mirror", tmp_path / "mirror")

    told = command("hydrate", "--lock", lock, "--mirror", tmp_path / "mirror", "--cache", upscale)

    assert (told.exit_code, told.stderr.count("\n")) == (2, 1)
    assert f"the cache is a file: {upscale}" in told.stderr


@pytest.mark.parametrize("output", ["upscale.json/lock", "."])
def test_a_lock_that_cannot_be_written_is_wrong_usage(
    command: Command, upscale: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, output: str
) -> None:
    monkeypatch.chdir(tmp_path)
    library(tmp_path / "library")

    told = command("lock", upscale, "--catalog", tmp_path / "library", "-o", output)

    assert (told.exit_code, told.stderr.count("\n")) == (2, 1)
    assert f"{output}: cannot be written" in told.stderr


def test_help_says_whose_value_wins(command: Command) -> None:
    assert "a job's own value wins" in " ".join(command("render", "--help").output.split())
