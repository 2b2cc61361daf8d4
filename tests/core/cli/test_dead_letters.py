"""`comfyfarm dead-letters`: jobs that failed for good are seen, requeued and dropped."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

Command = Callable[..., Result]
Render = Callable[[], Result]
UNKNOWN = "0c9c3f3a-7f10-4b8c-9b8c-5b1a6b2e6f0e"


@pytest.fixture
def render(command: Command, serving: Callable[..., Any], picture: Path, tmp_path: Path) -> Render:
    """Renders three jobs; the second dies on the first call, and none fails after it."""
    _, url = serving(script="ok,error,ok")
    lines = [json.dumps({"workflow": "picture.json", "set": {"1.color": color}}) for color in (1, 2, 3)]
    (tmp_path / "jobs.jsonl").write_text("\n".join(lines))
    options = ["--server", url, "--out", tmp_path / "out", "--batch", "b", "--local", "--json"]

    return lambda: command("render", tmp_path / "jobs.jsonl", *options)


def rows(told: Result) -> list[dict[str, Any]]:
    return [json.loads(line) for line in told.stdout.splitlines() if line.startswith("{")]


def test_a_dead_job_is_listed_and_shown_with_all_that_is_known(command: Command, render: Render) -> None:
    dead = next(row["id"] for row in rows(render()) if row["status"] == "dead")

    (listed,) = rows(command("dead-letters", "list", "--local", "--json"))
    table = command("dead-letters", "list", "--local", "--batch", "b").stdout
    (shown,) = rows(command("dead-letters", "show", "--local", "--json", dead[:8]))
    text = command("dead-letters", "show", "--local", "--all").stdout

    assert (listed["id"], listed["batch"], listed["status"], listed["attempts"]) == (dead, "b", "dead", 1)
    assert listed["reason_class"] == "node failed"
    assert listed["server"].startswith("http://127.0.0.1:")
    assert dead in table
    assert "node failed" in table
    assert set(shown["overrides"]) == {"1.color"}
    (attempt,) = shown["tries"]
    assert (attempt["verdict"], attempt["reason"], attempt["number"]) == ("permanent", "node failed", 1)
    assert "scripted error" in shown["evidence"]
    assert "scripted error" in text
    assert f"id            {dead}" in text


def test_a_requeued_job_runs_once_and_others_are_left_alone(command: Command, render: Render) -> None:
    first = render()
    dead = next(row["id"] for row in rows(first) if row["status"] == "dead")
    assert (first.exit_code, render().exit_code) == (1, 1)  # the same call runs nothing that is dead

    requeued = command("dead-letters", "requeue", "--local", dead)
    twice = command("dead-letters", "requeue", "--local", dead)
    again = render()

    assert (requeued.exit_code, twice.exit_code) == (0, 0)
    assert f"job {dead} of batch b: now pending" in twice.stderr
    assert again.exit_code == 0
    assert [(row["status"], row["attempts"]) for row in rows(again)] == [("succeeded", 1)] * 3
    done = command("dead-letters", "requeue", "--local", dead)
    assert done.exit_code == 2
    assert "has succeeded" in done.stderr
    assert "no dead letters" in command("dead-letters", "list", "--local").stderr


def test_a_dropped_job_is_cancelled_and_comes_back_when_it_is_named(command: Command, render: Render) -> None:
    dead = next(row["id"] for row in rows(render()) if row["status"] == "dead")

    (dropped,) = rows(command("dead-letters", "drop", "--local", "--json", "--all", "--why", "ugly"))
    repeated = command("dead-letters", "drop", "--local", dead)
    (kept,) = rows(command("dead-letters", "show", "--local", "--json", dead))

    assert dropped["status"] == "cancelled"
    assert dropped["reason"].startswith("dropped: ugly (node failed: ")
    assert repeated.exit_code == 0
    assert "scripted error" in kept["evidence"]
    assert kept["reason"] == dropped["reason"]
    assert "no dead letters" in command("dead-letters", "drop", "--local", "--all").stderr
    assert command("dead-letters", "requeue", "--local", dead).exit_code == 0
    assert render().exit_code == 0


def test_wrong_usage_says_what_is_wrong_and_changes_nothing(command: Command, render: Render) -> None:
    found = rows(render())
    good = next(row["id"] for row in found if row["status"] == "succeeded")
    dead = next(row["id"] for row in found if row["status"] == "dead")

    for words, told in {
        ("requeue", dead, UNKNOWN): f"has no job {UNKNOWN}",
        ("drop", dead, good): f"job {good} is succeeded, not dead",
        ("show", good): f"job {good} is succeeded, not dead",
        ("requeue", dead, good): "has succeeded",
        ("requeue",): "with --all",
        ("requeue", dead, "--all"): "with --all",
        ("show", "7"): "'7' is no job id",
        ("show", dead, "--batch", "x"): "is of batch b, not x",
        ("list", "--batch", "x"): "has no batch x",
    }.items():
        answer = command("dead-letters", words[0], "--local", *words[1:])
        assert (answer.exit_code, told in answer.stderr) == (2, True), (words, answer.output)

    assert [row["id"] for row in rows(command("dead-letters", "list", "--local", "--json"))] == [dead]


def test_a_job_whose_deadline_is_over_is_named_with_what_to_do(
    command: Command, serving: Callable[..., Any], picture: Path, tmp_path: Path
) -> None:
    _, url = serving()
    line = {"workflow": "picture.json", "deadline": "2001-09-09T01:46:40Z"}
    (tmp_path / "jobs.jsonl").write_text(json.dumps(line))
    call = [
        "render",
        tmp_path / "jobs.jsonl",
        "--server",
        url,
        "--out",
        tmp_path / "out",
        "--local",
        "--json",
    ]

    (late,) = rows(command(*call))
    requeued = command("dead-letters", "requeue", "--local", "--all")
    (tmp_path / "jobs.jsonl").write_text(json.dumps({**line, "deadline": "2999-01-01T00:00:00+01:00"}))
    (done,) = rows(command(*call))

    assert (late["status"], late["reason"]) == ("dead", "too late: not begun by 2001-09-09 01:46:40+00:00")
    assert "its deadline is over" in requeued.stderr
    assert (done["id"], done["status"]) == (late["id"], "succeeded")
