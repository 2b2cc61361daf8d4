"""`python -m fake_server comfy` as a process: its line, its options, its journal over a SIGKILL."""

import contextlib
import json
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from comfyfarm.clock import pause

ROOT = Path(__file__).parents[3]
GRAPH = {
    "1": {"class_type": "CheckpointLoaderSimple", "inputs": {"ckpt_name": "m.safetensors"}},
    "2": {"class_type": "PreviewAny", "inputs": {"source": ["1", 0]}},
}

Start = Callable[..., tuple[subprocess.Popen[str], str]]


@pytest.fixture
def start() -> Iterator[Start]:
    """Start the command; what still runs at the end is ended."""
    processes: list[subprocess.Popen[str]] = []

    def begin(*options: str) -> tuple[subprocess.Popen[str], str]:
        line = [sys.executable, "-m", "fake_server", "comfy", "--port", "0", *options]
        process = subprocess.Popen(line, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        processes.append(process)
        assert process.stdout is not None
        return process, process.stdout.readline().strip()

    yield begin
    for process in processes:
        process.terminate()
        process.wait(20)
        if process.stdout is not None:
            process.stdout.close()


def _call(url: str, body: Any = None) -> tuple[int, Any]:
    data = None if body is None else json.dumps(body).encode()
    try:
        with urllib.request.urlopen(urllib.request.Request(url, data)) as answer:  # noqa: S310
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as exc:
        with exc:
            return exc.code, exc.read()


def test_it_prints_its_url_when_it_is_ready_and_stops_on_sigterm(start: Start) -> None:
    process, url = start("--device", "NVIDIA L40S")

    assert url.startswith("http://127.0.0.1:")
    assert "NVIDIA L40S" in _call(f"{url}/system_stats")[1]["devices"][0]["name"]
    process.send_signal(signal.SIGTERM)
    assert process.wait(10) == 0


def test_the_journal_outlives_a_killed_server(start: Start, tmp_path: Path) -> None:
    (tmp_path / "models" / "checkpoints").mkdir(parents=True)
    (tmp_path / "models" / "checkpoints" / "m.safetensors").touch()
    options = (
        "--models-dir",
        str(tmp_path / "models"),
        "--journal",
        str(tmp_path / "journal"),
        "--script",
        "hang,ok",
    )
    process, url = start(*options)
    status, answer = _call(f"{url}/prompt", {"prompt": GRAPH, "client_id": "c"})
    assert status == 200
    process.kill()
    process.wait()

    _, second = start(*options[:4])
    earlier = _call(f"{second}/fake/log")[1]
    assert [(each["prompt_id"], each["end"]) for each in earlier] == [(answer["prompt_id"], None)]
    assert _call(f"{second}/history/{answer['prompt_id']}") == (200, {})

    _call(f"{second}/prompt", {"prompt": GRAPH, "prompt_id": answer["prompt_id"]})
    until = time.monotonic() + 20
    while (log := _call(f"{second}/fake/log")[1])[-1]["end"] is None:
        assert time.monotonic() < until
        pause(0.01)
    assert [(each["prompt_id"], each["end"]) for each in log] == [
        (answer["prompt_id"], None),
        (answer["prompt_id"], "success"),
    ]


def test_extra_model_paths_fill_the_loaders(start: Start, tmp_path: Path) -> None:
    (tmp_path / "view" / "checkpoints").mkdir(parents=True)
    config = tmp_path / "extra.yaml"
    config.write_text(f"farm:\n  base_path: {tmp_path / 'view'}\n  checkpoints: checkpoints\n")
    _, url = start("--extra-model-paths-config", str(config))

    refused, _ = _call(f"{url}/prompt", {"prompt": GRAPH})
    (tmp_path / "view" / "checkpoints" / "m.safetensors").touch()
    accepted, _ = _call(f"{url}/prompt", {"prompt": GRAPH})

    assert (refused, accepted) == (400, 200)


def test_a_bad_script_is_a_usage_error() -> None:
    line = [sys.executable, "-m", "fake_server", "comfy", "--script", "nonsense"]

    done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, timeout=30)

    assert done.returncode == 2
    assert "use one of ok, 500" in done.stderr


def test_an_unhashable_client_id_ends_the_process_as_it_ends_the_real_one(
    start: Start, tmp_path: Path
) -> None:
    process, url = start()
    image = {"width": 8, "height": 8, "batch_size": 1, "color": 0}
    graph = {
        "1": {"class_type": "EmptyImage", "inputs": image},
        "2": {"class_type": "PreviewImage", "inputs": {"images": ["1", 0]}},
    }

    _call(f"{url}/prompt", {"prompt": graph, "client_id": ["a", "list"]})

    assert process.wait(10) == 1


@pytest.mark.parametrize("word", ["exit-before", "exit-accepted", "exit-node", "exit-success"])
def test_a_scripted_exit_ends_the_process(start: Start, tmp_path: Path, word: str) -> None:
    journal = tmp_path / "journal"
    process, url = start("--script", word, "--journal", str(journal))
    image = {"width": 8, "height": 8, "batch_size": 1, "color": 0}
    graph = {
        "1": {"class_type": "EmptyImage", "inputs": image},
        "2": {"class_type": "PreviewImage", "inputs": {"images": ["1", 0]}},
    }

    with contextlib.suppress(OSError):
        _call(f"{url}/prompt", {"prompt": graph, "client_id": "c"})

    assert process.wait(10) == 1
    accepted = len(journal.read_text().split('"received"')) - 1 if journal.exists() else 0
    assert accepted == (word != "exit-before")


def test_a_file_may_switch_something_on_from_the_start_and_a_restart_ends_it(
    start: Start, tmp_path: Path
) -> None:
    file = tmp_path / "script.json"
    file.write_text('{"script": "ok", "now": ["history-500"]}')
    _, url = start("--script", str(file))

    assert _call(f"{url}/history")[0] == 500
    assert _call(f"{url}/fake/restart", {"down_s": 0.1}) == (200, {"boots": 2})
    assert _call(f"{url}/history") == (200, {})
