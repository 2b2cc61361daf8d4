"""`comfyfarm batch make`: a sweep becomes a job file that `render` takes."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from comfyfarm.farm.prepare import plan_jobs
from comfyfarm.farm.request import RenderRequest
from comfyfarm.farm.sources import read_sources
from comfyfarm.workflow.overrides import apply_overrides

Command = Callable[..., Result]


def planned(file: Path) -> list[dict[str, Any]]:
    """What `render` would put into each job's graph, without any server."""
    request = RenderRequest(
        job_file=str(file), out="out", servers=("http://h:1",), cache_dir=Path("cache"), host="h"
    )
    plan = plan_jobs(request, read_sources(request))
    (workflow,) = plan.workflows.values()
    for job in plan.jobs:
        apply_overrides(workflow, job.overrides)
    return [{str(one): one.value for one in job.overrides} for job in plan.jobs]


def test_what_is_made_is_what_render_takes(command: Command, picture: Path, tmp_path: Path) -> None:
    (tmp_path / "names.txt").write_text("a fox\n\n1\n")
    made = tmp_path / "jobs" / "sweep.jsonl"
    made.parent.mkdir()
    prompts = f"2.filename_prefix=@{tmp_path / 'names.txt'}"

    told = command("batch", "make", picture, "--set", "1.color=1..2", "--set", prompts, "-o", made)

    assert told.exit_code == 0
    assert told.stdout == ""
    assert "4 jobs" in told.stderr
    assert [json.loads(line)["workflow"] for line in made.read_text().splitlines()] == ["../picture.json"] * 4
    assert planned(made) == [
        {"1.color": color, "2.filename_prefix": name} for color in (1, 2) for name in ("a fox", "1")
    ]


def test_on_stdout_the_workflow_has_its_whole_path(
    command: Command, picture: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(picture.parent)
    options = ["--zip", "--priority", 3, "--tenant", "Ä & Co"]

    told = command("batch", "make", "picture.json", "--set", "1.color=[5, 6]", *options)

    lines = [json.loads(line) for line in told.stdout.splitlines()]
    whole = str(picture.resolve())
    assert lines == [
        {"workflow": whole, "set": {"1.color": color}, "priority": 3, "tenant": "Ä & Co"} for color in (5, 6)
    ]
    assert told.stderr == ""


def test_a_made_file_is_rendered(
    command: Command, serving: Callable[..., Any], picture: Path, tmp_path: Path
) -> None:
    _, url = serving()
    made = tmp_path / "sweep.jsonl"
    command("batch", "make", picture, "--set", "1.color=1..3", "-o", made)

    told = command("render", made, "--server", url, "--out", tmp_path / "out", "--local", "--json")

    assert told.exit_code == 0
    assert [json.loads(line)["status"] for line in told.stdout.splitlines()] == ["succeeded"] * 3


def test_through_a_linked_folder_the_workflow_is_still_found(
    command: Command, picture: Path, tmp_path: Path
) -> None:
    (tmp_path / "far" / "away").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "far" / "away")
    made = tmp_path / "link" / "sweep.jsonl"

    command("batch", "make", picture, "--set", "1.color=1..2", "-o", made)

    assert len(planned(made)) == 2


@pytest.mark.parametrize(
    ("words", "told", "code"),
    [
        (["--set", "9.color=1"], "there is no node '9'", 1),
        (["--set", "1.colour=1..2"], "has no input 'colour'; did you mean color?", 1),
        (["--set", "color=3"], "--set 'color' names no input", 2),
        (["--set", "1.color", "--set", "1.width=8"], "--set '1.color' has no value", 2),
        (["--set", "1.color=1", "-o", "picture.json/x.jsonl"], "cannot be written", 2),
        (["--zip", "--set", "1.color=1..3", "--set", "1.width=[8,16]"], "1.color has 3, 1.width has 2", 1),
        (["--set", "1.color=@gone.txt"], "gone.txt: there is no such file", 1),
        (["--set", "1.color=1", "-o", "sweep.json"], "name it sweep.json.jsonl", 2),
        (["--set", "1.color=1", "-o", "no/where.jsonl"], "cannot be written", 2),
        (["--set", "1.color=1", "--tenant", "a\nb"], "--tenant", 2),
        (["--set", "1.color=1", "--priority", "99999999999"], "--priority", 2),
        ([], "--set", 2),
    ],
)
def test_a_mistake_is_named_and_nothing_is_written(
    command: Command,
    picture: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: list[str],
    told: str,
    code: int,
) -> None:
    monkeypatch.chdir(tmp_path)
    answer = command("batch", "make", picture, *words)

    assert (answer.exit_code, told in answer.stderr, answer.stdout) == (code, True, ""), answer.output
    assert {file.name for file in tmp_path.iterdir()} <= {"picture.json", "state", "cache"}


def test_help_says_what_values_may_be(command: Command) -> None:
    told = command("batch", "make", "--help").output

    for words in ("1..50..5", "@prompts.txt", '["a fox", "a tram"]', "[[1, 2]]", "--zip", "--product"):
        assert words in told
