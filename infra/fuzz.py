"""`make fuzz`: real workflow files, broken in every way one can think of. Each must end as a report.

`python -m infra.fuzz [--seconds N] [--seed N]`: every round mutates one file by a seed of its own, which
is printed when it fails, with the file kept. A crash, a finding without code or remedy, or a file that
takes longer than 10 s is a failure.
"""

import argparse
import gzip
import json
import random
import re
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from comfyfarm.workflow.preflight import preflight
from comfyfarm.workflow.schema import NodeSchema

ROOT = Path(__file__).resolve().parent.parent
SLOWEST_S = 10.0
_CODE = re.compile(r"[a-z][a-z0-9_]*")
_ODD: tuple[Any, ...] = (
    None, True, False, -1, 0, 1, 2**53 + 1, 2**64, -(2**70), 1e308, 0.5, "", " ", "*", "0", "-10", "-20",
    "a\\b/../c.pt", "embedding:", "<lora:", "x" * 3000, "\u202e\u0000", "workflow>x", "e\u0301.safetensors",
    [], {}, [[]], [None], ["1", 0], ["1", -1], [1, 0], ["1", 0, 0], {"__value__": None}, {"a": {"b": {}}},
    {"on": True, "lora": 3},
)  # fmt: skip
_KEYS = ("nodes", "links", "inputs", "outputs", "widgets_values", "type", "id", "mode", "properties",
         "proxyWidgets", "definitions", "subgraphs", "class_type", "extra", "groupNodes", "reroutes",
         "prompt", "workflow", "input", "models", "cnr_id", "ver", "widget", "link", "name")  # fmt: skip


@dataclass(frozen=True)
class Failure:
    """A file that did not end as a report."""

    seed: int
    source: str
    why: str
    data: bytes


def fuzz(*, seconds: float, seed: int) -> tuple[int, Failure | None]:
    """Break files for so long, or until one fails; how many were tried."""
    sources, schema = list(_sources()), NodeSchema.shipped()
    end = time.monotonic() + seconds
    tried = 0
    while time.monotonic() < end:
        number = seed + tried
        tried += 1
        rng = random.Random(number)
        name, data = rng.choice(sources)
        broken = mutate(rng, data, [other for _, other in rng.sample(sources, 2)])
        why = fault(broken, schema)
        if why is not None:
            return tried, Failure(number, name, why, broken)
    return tried, None


def fault(data: bytes, schema: NodeSchema) -> str | None:
    """What is wrong with how preflight takes this file; None when it ends as a report."""
    begun = time.monotonic()
    try:
        report = preflight(data, name="fuzz", schema=schema)
        json.dumps(report.model_dump(mode="json"), allow_nan=False).encode()
    except Exception:  # noqa: BLE001 - finding these is what it is for
        return traceback.format_exc()
    taken = time.monotonic() - begun
    if taken > SLOWEST_S:
        return f"took {taken:.1f} s"
    for found in report.findings:
        if not _CODE.fullmatch(found.code) or not found.message or not found.remedy:
            return f"a finding without code, message or remedy: {found!r}"
    if report.format == "unknown" and not report.findings:
        return "not read, and nothing said of it"
    return None


def mutate(rng: random.Random, data: bytes, others: Sequence[bytes]) -> bytes:
    """One to four changes, of the tree where the file is JSON, of its bytes else."""
    tree = _tree(data)
    if tree is None or rng.random() < 0.2:
        for _ in range(rng.randint(1, 4)):
            data = rng.choice(_BYTES)(rng, data, rng.choice(others))
        return data
    for _ in range(rng.randint(1, 4)):
        tree = _change(rng, tree, _tree(rng.choice(others)))
    return json.dumps(tree, ensure_ascii=rng.random() < 0.5, allow_nan=True).encode(errors="surrogatepass")


def _tree(data: bytes) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None


def _flip(rng: random.Random, data: bytes, _other: bytes) -> bytes:
    made = bytearray(data)
    for _ in range(rng.randint(1, 16)):
        made[rng.randrange(len(made))] = rng.randrange(256)
    return bytes(made)


def _cut(rng: random.Random, data: bytes, _other: bytes) -> bytes:
    return data[: rng.randrange(len(data))] or b"{"


def _drop(rng: random.Random, data: bytes, _other: bytes) -> bytes:
    begin = rng.randrange(len(data))
    return data[:begin] + data[begin + rng.randint(1, 64) :] or b"{"


def _splice(rng: random.Random, data: bytes, other: bytes) -> bytes:
    place, begin = rng.randrange(len(data)), rng.randrange(len(other))
    return data[:place] + other[begin : begin + rng.randint(1, 4096)] + data[place:]


def _sizes(rng: random.Random, data: bytes, _other: bytes) -> bytes:
    """Length fields of containers are the first that lie."""
    place = rng.randrange(len(data))
    return (
        data[:place] + rng.choice((b"\xff" * 4, b"\0" * 4, b"\x7f\xff\xff\xff", b"\x80")) + data[place + 4 :]
    )


_BYTES: tuple[Callable[[random.Random, bytes, bytes], bytes], ...] = (_flip, _cut, _drop, _splice, _sizes)


def _change(rng: random.Random, tree: Any, other: Any) -> Any:
    places = list(_places(tree))
    if not places:
        return _tree(_text(rng.choice(_ODD)))
    holder, key = rng.choice(places)
    kind = rng.randrange(7)
    if kind == 0:
        del holder[key]
    elif kind == 1:
        holder[key] = rng.choice(_ODD)
    elif kind == 2:
        source, name = rng.choice(places)
        holder[key] = source[name] if name in source or isinstance(source, list) else None
    elif kind == 3 and other is not None and (found := list(_places(other))):
        source, name = rng.choice(found)
        holder[key] = source[name]
    elif kind == 4 and isinstance(holder, dict):
        holder[rng.choice(_KEYS)] = holder.pop(key)
    elif kind == 5 and isinstance(holder, list):
        holder.extend(holder[: rng.randint(1, 50)])
    else:
        holder[key] = _nested(rng, holder[key])
    # Subtrees are shared after a copy: only the text makes a tree of it again, and a circle none.
    return _tree(_text(tree))


def _text(tree: Any) -> bytes:
    try:
        return json.dumps(tree).encode()
    except (ValueError, RecursionError):
        return b"{}"


def _nested(rng: random.Random, value: Any) -> Any:
    for _ in range(rng.randint(1, 60)):
        value = [value] if rng.random() < 0.5 else {rng.choice(_KEYS): value}
    return value


def _places(tree: Any) -> Iterator[tuple[Any, Any]]:
    stack = [tree]
    while stack:
        value = stack.pop()
        keys = (
            value.keys() if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
        )
        for key in keys:
            yield value, key
            stack.append(value[key])


@cache
def _sources() -> tuple[tuple[str, bytes], ...]:
    """Templates, real files with truths, tricky cases, and media with graphs in them."""
    templates = files("comfyui_workflow_templates_json") / "templates"
    named = sorted(item.name for item in templates.iterdir() if item.name.endswith(".json"))[::6]
    found = [(name, (templates / name).read_bytes()) for name in named]
    for folder in ("workflows", "carriers"):
        paths = sorted((ROOT / "tests" / "data" / folder).rglob("*"))
        found.extend((path.name, path.read_bytes()) for path in paths if _is_source(path))
    held = json.loads(gzip.decompress((ROOT / "tests" / "data" / "ui" / "tricky.json.gz").read_bytes()))
    found.extend((name, json.dumps(tree).encode()) for name, tree in held.items())
    return tuple(found)


def _is_source(path: Path) -> bool:
    return path.is_file() and path.suffix not in {".md", ".gz"} and "truth" not in path.name


def main() -> int:
    """Fuzz, and say what came of it."""
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--seconds", type=float, default=600)
    asked.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 40))
    options = asked.parse_args()
    print(f"seed {options.seed}, {options.seconds:g} s", flush=True)
    tried, failure = fuzz(seconds=options.seconds, seed=options.seed)
    if failure is None:
        print(f"{tried} broken files, each of them a report")
        return 0
    with tempfile.NamedTemporaryFile(prefix="comfyfarm-fuzz-", delete=False) as kept:
        kept.write(failure.data)
    print(f"seed {failure.seed}, from {failure.source}, kept as {kept.name}:\n{failure.why}")
    return 1


if __name__ == "__main__":
    sys.exit(main())
