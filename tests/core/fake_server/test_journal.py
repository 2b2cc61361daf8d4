"""The journal: what one life wrote, the next one knows."""

import json
from pathlib import Path

from fake_server.comfy.journal import Journal


def test_an_entry_gains_its_start_and_end() -> None:
    journal = Journal()
    key = journal.received("p", "c")

    assert journal.entries()[0]["end"] is None

    journal.started(key)
    journal.ended(key, "success")

    (entry,) = journal.entries()
    assert set(entry) == {"prompt_id", "client_id", "received", "started", "ended", "end"}
    assert entry["received"] <= entry["started"] <= entry["ended"]
    assert (entry["prompt_id"], entry["client_id"], entry["end"]) == ("p", "c", "success")


def test_earlier_lives_are_kept_and_come_first(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    killed = Journal(path)
    killed.started(killed.received("first", None))
    # No close: the process is gone. What it wrote was flushed.
    second = Journal(path)
    second.ended(second.received("first", None), "error")

    assert [(each["prompt_id"], each["end"]) for each in second.entries()] == [
        ("first", None),
        ("first", "error"),
    ]
    killed.close()
    second.close()


def test_a_line_that_was_cut_short_does_no_harm(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    path.write_text(json.dumps({"key": "a", "prompt_id": "whole"}) + '\n{"key": "b", "prompt')

    journal = Journal(path)
    journal.received("new", "c")
    journal.close()

    assert [each["prompt_id"] for each in journal.entries()] == ["whole", "new"]
    assert [each["prompt_id"] for each in Journal(path).entries()] == ["whole", "new"]
