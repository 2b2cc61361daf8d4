"""Group `preflight`: how fast workflows are read, checked and looked through for models."""

import gzip
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from importlib.resources import files
from pathlib import Path

from benchmarks.figure import Figure
from comfyfarm.workflow.preflight import preflight
from comfyfarm.workflow.schema import NodeSchema

ROOT = Path(__file__).resolve().parent.parent
PROGRAM = str(Path(sys.executable).with_name("comfyfarm"))
CHAIN = 100_000


def figures() -> Iterator[Figure]:
    """All figures of the group."""
    yield from _templates()
    yield from _chain()
    yield from _cold()


def _templates() -> Iterator[Figure]:
    """The templates of the gold rows, one after another in this process, once warmed up."""
    schema = NodeSchema.shipped()
    data = _gold_templates()

    def all_of_them() -> None:
        for name, text in data.items():
            preflight(text, name=name, schema=schema)

    all_of_them()
    taken = _median(all_of_them, times=5)
    rate = len(data) / taken
    yield Figure("preflight of the templates, warm", round(rate, 1), "files/s", ">= 100", rate >= 100,
                 f"the clock, {len(data)} files, one process, median of 5")  # fmt: skip
    yield _multiple("preflight of the templates", taken, list(data.values()))


def _chain() -> Iterator[Figure]:
    """One graph of many nodes, each on the one before: linear when double the nodes take double the time."""
    schema = NodeSchema.shipped()
    whole, half = _chain_of(CHAIN), _chain_of(CHAIN // 2)
    taken = _median(lambda: preflight(whole, name="chain", schema=schema), times=3)
    short = _median(lambda: preflight(half, name="chain", schema=schema), times=3)
    yield Figure(f"preflight of a chain of {CHAIN} nodes", round(taken, 2), "s", "< 3", taken < 3,
                 "the clock, median of 3")  # fmt: skip
    ratio = taken / short
    yield Figure("chain, double the nodes", round(ratio, 2), "times the time", "< 2.4", ratio < 2.4,
                 f"a chain of {CHAIN // 2} nodes in the same run")  # fmt: skip
    yield _multiple(f"preflight of a chain of {CHAIN} nodes", taken, [whole])


def _cold() -> Iterator[Figure]:
    """The command, from its start to its end, on a template with subgraphs."""
    name, text = max(_gold_templates().items(), key=lambda item: len(item[1]))
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / name
        file.write_bytes(text)
        call = [PROGRAM, "preflight", str(file), "--json"]
        taken = _median(lambda: subprocess.run(call, stdout=subprocess.DEVNULL, check=False), times=7)
    yield Figure("comfyfarm preflight FILE, cold", round(taken, 3), "s", "< 0.6", taken < 0.6,
                 f"the clock, median of 7, the largest template ({len(text)} bytes)")  # fmt: skip
    yield _multiple("comfyfarm preflight FILE, cold", taken, [text])


def _multiple(what: str, taken: float, texts: Sequence[bytes]) -> Figure:
    parsed = _median(lambda: [json.loads(text) for text in texts], times=5)
    return Figure(f"{what}, against json.loads", round(taken / parsed, 1), "times", "none", ok=True,
                  against=f"json.loads of the same files, {parsed:.4f} s")  # fmt: skip


def _median(work: Callable[[], object], *, times: int) -> float:
    taken = []
    for _ in range(times):
        begun = time.perf_counter()
        work()
        taken.append(time.perf_counter() - begun)
    return statistics.median(taken)


def _gold_templates() -> dict[str, bytes]:
    folder = files("comfyui_workflow_templates_json") / "templates"
    rows = gzip.decompress((ROOT / "tests" / "data" / "templates" / "gold.jsonl.gz").read_bytes())
    names = [json.loads(line)["template"] for line in rows.splitlines()]
    return {name: (folder / name).read_bytes() for name in names}


def _chain_of(count: int) -> bytes:
    size = {"width": 64, "height": 64, "batch_size": 1, "color": 0}
    graph: dict[str, object] = {"0": {"class_type": "EmptyImage", "inputs": size}}
    for number in range(1, count - 1):
        graph[str(number)] = {"class_type": "ImageInvert", "inputs": {"image": [str(number - 1), 0]}}
    graph[str(count - 1)] = {
        "class_type": "SaveImage",
        "inputs": {"images": [str(count - 2), 0], "filename_prefix": "c"},
    }
    return json.dumps(graph).encode()
