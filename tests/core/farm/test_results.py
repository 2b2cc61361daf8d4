"""Rows as people and scripts see them, and the exit code that follows."""

import csv
import io
import json
from typing import Any

import pytest

from comfyfarm.farm.results import ResultRow, as_csv, exit_code, row_of
from comfyfarm.ids import JobId, NodeId
from comfyfarm.ledger.records import JobRecord, OutputFile, Status
from comfyfarm.plan.job import Override
from comfyfarm.run.outcome import Reason

FILE = OutputFile(path="sub/p_00001_.png", sha256="ab" * 32, size=633)


def test_a_password_in_a_servers_address_is_not_printed() -> None:
    row = row_of(job(Status.SUCCEEDED, server_url="http://user:geheim@127.0.0.1:8188"))

    assert row.server == "http://***@127.0.0.1:8188"
    assert "geheim" not in row.as_json()


def job(status: Status, **more: Any) -> JobRecord:
    fields: dict[str, Any] = {
        "id": JobId("00000000-0000-4000-8000-000000000001"),
        "batch": "b",
        "position": 0,
        "status": status,
        "graph_digest": "0" * 64,
        "overrides": (Override(node=NodeId("19:3"), input="seed", value=7),),
        "content_digest": "0" * 64,
        "files": (FILE,),
        **more,
    }
    return JobRecord(**fields)


def row(status: str, reason_class: str | None = None) -> ResultRow:
    return row_of(job(Status(status), reason_class=reason_class))


def test_a_row_has_the_fields_of_the_contract() -> None:
    done = row_of(job(Status.SUCCEEDED, server_url="http://h:1", attempts=2, seconds=1.23456))

    assert json.loads(done.as_json()) == {
        "id": "00000000-0000-4000-8000-000000000001",
        "status": "succeeded",
        "server": "http://h:1",
        "attempts": 2,
        "seconds": 1.235,
        "reason": "",
        "files": [{"path": "sub/p_00001_.png", "sha256": "ab" * 32, "size": 633}],
    }
    assert "\n" not in done.as_json()


@pytest.mark.parametrize(
    ("status", "shown", "reason", "files"),
    [
        (Status.PENDING, "pending", "earlier", 0),
        (Status.RUNNING, "pending", "earlier", 0),
        (Status.RENDERED, "pending", "not uploaded", 1),
        (Status.SUCCEEDED, "succeeded", "earlier", 1),
        (Status.DEAD, "dead", "earlier", 0),
        (Status.CANCELLED, "cancelled", "earlier", 0),
    ],
)
def test_what_is_only_ours_is_pending_outside(status: Status, shown: str, reason: str, files: int) -> None:
    found = row_of(job(status, reason="earlier"))

    assert (found.status, found.reason, len(found.files)) == (shown, reason, files)


@pytest.mark.parametrize(
    ("rows", "code"),
    [
        ([], 0),
        ([row("succeeded")], 0),
        ([row("succeeded"), row("pending")], 3),
        ([row("succeeded"), row("running")], 3),
        ([row("rendered")], 3),
        ([row("cancelled"), row("pending")], 1),
        *[([row("dead", reason)], 1) for reason in ("invalid workflow", "node failed", "crashes servers")],
        *[([row("dead", reason)], 3) for reason in ("oom", "server", "interrupted", "crash", "deadline")],
        ([row("dead", "upload")], 3),
        ([row("dead", "oom"), row("dead", "node failed"), row("pending")], 1),
        ([row("dead", None)], 1),
    ],
)  # fmt: skip
def test_the_exit_code(rows: list[ResultRow], code: int) -> None:
    assert exit_code(rows) == code


def test_every_reason_has_its_exit_code() -> None:
    codes = {reason: exit_code([row("dead", reason)]) for reason in Reason}

    assert {reason for reason, code in codes.items() if code == 1} == {
        Reason.INVALID_WORKFLOW,
        Reason.NODE_FAILED,
        Reason.CRASHES_SERVERS,
        Reason.CANCELLED,
        Reason.GIVEN_BACK,
    }


def test_csv_can_be_read_by_others() -> None:
    odd = job(Status.DEAD, reason='node failed: "x", y', attempts=1, files=())
    done = job(Status.SUCCEEDED, server_url="http://h:1", attempts=1, seconds=0.5, files=(FILE, FILE))
    table = list(csv.DictReader(io.StringIO(as_csv([row_of(done), row_of(odd)]))))

    assert list(table[0]) == [
        "job", "parameters", "status", "server", "attempts", "seconds", "files", "reason",
    ]  # fmt: skip
    assert json.loads(table[0]["parameters"]) == {"19:3.seed": 7}
    assert (table[0]["seconds"], table[1]["seconds"]) == ("0.500", "")
    assert table[0]["files"] == " ".join([f"sub/p_00001_.png sha256:{'ab' * 32}"] * 2)
    assert table[1]["reason"] == 'node failed: "x", y'
