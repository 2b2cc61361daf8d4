"""Commands that only read answer in half a second: what takes long to load is not loaded."""

import json
import subprocess
import sys
from pathlib import Path

_LISTED = """
import sys
sys.argv = ["comfyfarm", "preflight", sys.argv[1], "--json"]
from comfyfarm.cli import run
try:
    run()
finally:
    print(*sys.modules, file=sys.stderr)
"""


def test_a_preflight_loads_no_event_loop_and_no_network(tmp_path: Path) -> None:
    graph = {"1": {"class_type": "EmptyImage", "inputs": {}}}
    (tmp_path / "w.json").write_text(json.dumps(graph))
    call = [sys.executable, "-c", _LISTED, str(tmp_path / "w.json")]
    done = subprocess.run(call, capture_output=True, text=True, check=False)
    loaded = set(done.stderr.split())
    assert json.loads(done.stdout)["format"] == "api"
    assert "comfyfarm.workflow.preflight" in loaded
    assert loaded.isdisjoint({"asyncio", "ssl", "httpx", "aiohttp", "PIL", "numpy", "prefect", "sqlalchemy"})
    assert "comfyfarm.workflow.ui.convert" not in loaded, "an API graph needs no conversion"
