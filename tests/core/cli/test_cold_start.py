"""Commands that only read answer in half a second: what takes long to load is not loaded."""

import hashlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

_LISTED = """
import sys
sys.argv[0] = "comfyfarm"
from comfyfarm.cli import run
try:
    run()
finally:
    print(*sys.modules, file=sys.stderr)
"""


def test_a_preflight_loads_no_event_loop_and_no_network(tmp_path: Path) -> None:
    graph = {"1": {"class_type": "EmptyImage", "inputs": {}}}
    (tmp_path / "w.json").write_text(json.dumps(graph))
    call = [sys.executable, "-c", _LISTED, "preflight", str(tmp_path / "w.json"), "--json"]
    done = subprocess.run(call, capture_output=True, text=True, check=False)
    loaded = set(done.stderr.split())
    assert json.loads(done.stdout)["format"] == "api"
    assert "comfyfarm.workflow.preflight" in loaded
    assert loaded.isdisjoint({"asyncio", "ssl", "httpx", "aiohttp", "PIL", "numpy", "prefect", "sqlalchemy"})
    assert "comfyfarm.workflow.ui.convert" not in loaded, "an API graph needs no conversion"


@pytest.mark.parametrize("words", [("hydrate", "--lock"), ("prewarm",)])
def test_files_that_are_here_need_no_database_and_no_client(tmp_path: Path, words: tuple[str, ...]) -> None:
    source = tmp_path / "m.safetensors"
    source.write_bytes(b"m")
    model = {"folder": "vae", "path": "m.safetensors", "sha256": hashlib.sha256(b"m").hexdigest(), "size": 1}
    lock = {"version": 1, "models": [{**model, "sources": [str(source)]}]}
    (tmp_path / "lock").write_text(json.dumps(lock))
    call = [sys.executable, "-c", _LISTED, *words, str(tmp_path / "lock"), "--cache", str(tmp_path / "cache")]

    done = [subprocess.run(call, capture_output=True, text=True, check=False) for _ in range(2)]

    assert [one.returncode for one in done] == [0, 0], done[0].stderr
    loaded = set(done[1].stderr.split())
    assert "comfyfarm.cache.hydrate" in loaded
    clients = {"httpx", "aiohttp", "obstore", "botocore", "fsspec"}
    assert loaded.isdisjoint({"prefect", "sqlalchemy", "rich", "numpy", "PIL", *clients})
