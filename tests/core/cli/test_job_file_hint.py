"""A job file in the place of a workflow is called what it is."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

Command = Callable[..., Result]


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("name", ["preflight", "lock"])
def test_a_job_file_is_told_to_name_its_workflows(
    command: Command, tmp_path: Path, name: str, count: int
) -> None:
    sweep = tmp_path / "sweep.jsonl"
    sweep.write_text("".join(json.dumps({"id": str(n), "workflow": "a.json"}) + "\n" for n in range(count)))
    (tmp_path / "c.json").write_text("[]")
    more = ["--catalog", tmp_path / "c.json", "-o", tmp_path / "l"] if name == "lock" else []
    told = command(name, sweep, *more, "--json")

    (one,) = json.loads(told.stdout)["findings"]
    assert told.exit_code == 1
    assert (one["message"], one["remedy"]) == ("this looks like a job file", "name its workflows: a.json")


@pytest.mark.parametrize("text", ['{"a": 1}\n{"a": 2}\n', '{"workflow": "a.json"}\nx\n', "{"])
def test_other_broken_files_keep_their_own_message(command: Command, tmp_path: Path, text: str) -> None:
    (tmp_path / "w.jsonl").write_text(text)
    told = command("preflight", tmp_path / "w.jsonl", "--json")

    assert "not JSON" in json.loads(told.stdout)["findings"][0]["message"]
