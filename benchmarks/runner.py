"""Group `runner`: what the runner costs beside a bare loop, and what it keeps in memory."""

import json
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from aiohttp import web

from benchmarks.figure import Figure
from comfyfarm.control.postgres import running_postgres
from fake_server.serve import serve
from infra.comfy_servers import fake_comfy

ROOT = Path(__file__).resolve().parent.parent
JOBS, SERVERS, ROUNDS = 1000, 4, 3
OUTPUT_BYTES = 2 << 30
_CHUNK = bytes(1 << 20)


def figures() -> Iterator[Figure]:
    """All figures of the group."""
    rounds = _rounds()
    bare = statistics.median(one["bare"]["cpu_ms"] for one in rounds)
    against = (
        f"{JOBS} jobs of 0 ms on {SERVERS} fakes, two in flight on each; median of {ROUNDS}, interleaved"
    )
    yield Figure("bare loop", round(bare, 2), "CPU ms a job", "", ok=True, against=against)
    for name in ("sqlite", "postgresql"):
        cost = statistics.median(one[name]["cpu_ms"] for one in rounds)
        yield Figure(
            f"runner, ledger on {name}", round(cost, 2), "CPU ms a job", "", ok=True, against=against
        )
        bar = "<= 3" if name == "sqlite" else ""
        is_ok = not bar or cost / bare <= 3
        yield Figure(f"{name} runner beside bare", round(cost / bare, 2), "times", bar, is_ok, against)
    yield _memory_by_jobs(rounds)
    yield _memory_by_output()


def _rounds() -> list[dict[str, dict[str, float]]]:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        home = Path(tempfile.mkdtemp(prefix="comfyfarm-bench-"))
        stack.callback(shutil.rmtree, home)
        home.chmod(0o711)  # PostgreSQL's own user must reach it although we may be root
        servers = [stack.enter_context(fake_comfy(log=folder / "fakes.log")).url for _ in range(SERVERS)]
        database = stack.enter_context(running_postgres(home / "control"))
        return [_round(number, servers, folder, database) for number in range(ROUNDS)]


def _round(number: int, servers: list[str], folder: Path, database: Any) -> dict[str, dict[str, float]]:
    database.create_database(f"round{number}")
    sqlite = f"sqlite:///{folder / f'ledger-{number}.db'}"
    few = f"sqlite:///{folder / f'few-{number}.db'}"
    return {
        "bare": _side("bare", servers, folder),
        "sqlite": _side("ours", servers, folder / f"s{number}", ledger=sqlite),
        "postgresql": _side("ours", servers, folder / f"p{number}", ledger=database.url(f"round{number}")),
        "few": _side("ours", servers, folder / f"f{number}", ledger=few, jobs=JOBS // 10),
    }


def _memory_by_jobs(rounds: list[dict[str, dict[str, float]]]) -> Figure:
    many, few = (statistics.median(one[name]["peak_mib"] for one in rounds) for name in ("sqlite", "few"))
    against = f"{JOBS} jobs beside {JOBS // 10}, peak RSS {many:.0f} and {few:.0f} MiB"
    return Figure(
        "memory by number of jobs", round(many / few, 2), "times", "<= 1.15", many / few <= 1.15, against
    )


def _memory_by_output() -> Figure:
    """What one output of 2 GiB keeps in memory on its way."""
    app = web.Application()
    app.router.add_get("/view", _huge)
    with tempfile.TemporaryDirectory() as name, serve(app) as url:
        peak = _side("collect", [url], Path(name))["peak_mib"]
    against = "peak RSS of a process that collects it from loopback, hashed"
    return Figure("output of 2 GiB", round(peak, 1), "MiB", "< 150", peak < 150, against)


async def _huge(request: web.Request) -> web.StreamResponse:
    answer = web.StreamResponse(headers={"Content-Length": str(OUTPUT_BYTES)})
    await answer.prepare(request)
    for _ in range(OUTPUT_BYTES // len(_CHUNK)):
        await answer.write(_CHUNK)
    return answer


def _side(
    side: str, servers: list[str], folder: Path, *, ledger: str = "", jobs: int = JOBS
) -> dict[str, float]:
    """CPU milliseconds a job and peak memory in MiB, as the side's process printed them."""
    folder.mkdir(parents=True, exist_ok=True)
    given = {"servers": servers, "jobs": jobs, "folder": str(folder), "ledger": ledger}
    command = [sys.executable, "-m", "benchmarks.runner_side", side]
    done = subprocess.run(
        command, input=json.dumps(given), cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True
    )
    told = json.loads(done.stdout)
    return {"cpu_ms": told["cpu_s"] * 1000 / jobs, "peak_mib": told["peak_mib"]}
