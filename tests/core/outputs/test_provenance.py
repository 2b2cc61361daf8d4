"""One stable record of what a job's files came from."""

import json

from comfyfarm import __version__
from comfyfarm.ids import JobId, LeaseToken, NodeId
from comfyfarm.ledger.records import AttemptRecord, JobRecord, OutputFile, Status
from comfyfarm.lock.lockfile import LockedModel
from comfyfarm.outputs.provenance import Provenance, make_provenance, server_host
from comfyfarm.plan.job import Override

_JOB = JobId("0c6f2c3c-3f06-5f0f-9d6e-6d2a4c1c7c55")
_A, _B = "a" * 64, "b" * 64


def _job(*, files: tuple[OutputFile, ...], overrides: tuple[Override, ...] = ()) -> JobRecord:
    return JobRecord(
        id=_JOB,
        batch="portraits",
        position=0,
        status=Status.RENDERED,
        graph_digest=_A,
        overrides=overrides,
        content_digest=_B,
        attempts=2,
        seconds=4.5,
        files=files,
    )


def _attempt(number: int, verdict: str | None) -> AttemptRecord:
    return AttemptRecord(
        id=number,
        job_id=_JOB,
        number=number,
        token=LeaseToken(number),
        server_url=f"http://me:5ecret@gpu{number}:8188/x?token=5ecret",
        server_identity=f"{number}/1.00",
        client_id="c",
        device="cuda:0 NVIDIA GeForce RTX 4090",
        server_version="0.27.0",
        started=100.0 + number,
        ended=104.5 + number,
        verdict=verdict,
    )


_MODELS = (
    LockedModel(folder="vae", path="v.pt", sha256=_B, size=2),
    LockedModel(folder="checkpoints", path="c.safetensors", sha256=_A, size=1),
)
_FILES = (OutputFile(path="a.png", sha256=_A, size=3), OutputFile(path="b.png", sha256=_B, size=4))
_OVERRIDES = (
    Override(node=NodeId("19:3"), input="seed", value=7),
    Override(node=NodeId("3"), input="text", value="ein Löwe"),
)


def test_the_record_names_everything_the_files_came_from() -> None:
    attempts = [_attempt(1, "transient"), _attempt(2, "succeeded"), _attempt(3, None)]

    data = make_provenance(_job(files=_FILES, overrides=_OVERRIDES), attempts, models=_MODELS, lock_digest=_B)

    assert json.loads(data) == {
        "format": 1,
        "job": _JOB,
        "batch": "portraits",
        "workflow_sha256": _A,
        "lock_sha256": _B,
        "overrides": {"19:3.seed": 7, "3.text": "ein Löwe"},
        "models": [
            {"folder": "checkpoints", "path": "c.safetensors", "sha256": _A},
            {"folder": "vae", "path": "v.pt", "sha256": _B},
        ],
        "server": {
            "host": "gpu2:8188",
            "version": "0.27.0",
            "device": "cuda:0 NVIDIA GeForce RTX 4090",
            "identity": "2/1.00",
        },
        "attempts": 2,
        "timings": {"queued": None, "started": 102.0, "ended": 106.5, "seconds": 4.5},
        "files": [
            {"path": "a.png", "sha256": _A, "size": 3},
            {"path": "b.png", "sha256": _B, "size": 4},
        ],
        "comfyfarm": __version__,
    }
    assert "ein Löwe".encode() in data
    assert b"5ecret" not in data
    assert Provenance.model_validate_json(data).job == _JOB


def test_equal_work_gives_equal_bytes_in_whatever_order_it_is_told() -> None:
    attempts = [_attempt(1, "succeeded")]

    one = make_provenance(
        _job(files=_FILES, overrides=_OVERRIDES), attempts, models=_MODELS, lock_digest=None
    )
    other = make_provenance(
        _job(files=_FILES[::-1], overrides=_OVERRIDES[::-1]),
        attempts,
        models=_MODELS[::-1],
        lock_digest="",
    )

    assert one == other


def test_a_job_without_attempts_has_no_server() -> None:
    data = make_provenance(_job(files=()), [], models=(), lock_digest=None)

    assert json.loads(data)["server"] is None


def test_only_host_and_port_of_a_server_are_kept() -> None:
    assert server_host("https://user:pass@gpu.example:8188/path?token=1") == "gpu.example:8188"
