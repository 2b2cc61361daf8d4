"""One side of the runner's comparison, in a process of its own: prints its CPU seconds and peak memory.

`python -m benchmarks.runner_side bare|ours|collect` reads from stdin: servers, jobs, folder, ledger.
"""

import asyncio
import json
import resource
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
from websockets.asyncio.client import connect

from comfyfarm.clock import SystemClock
from comfyfarm.comfy.client import ComfyClient
from comfyfarm.comfy.wire import HistoryEntry
from comfyfarm.farm.local import render_here
from comfyfarm.farm.request import RenderRequest
from comfyfarm.ids import JobId
from comfyfarm.ledger.ledger import open_ledger
from comfyfarm.outputs.collect import Spool, collect
from comfyfarm.settings import read_settings

IN_FLIGHT = 2  # prompts on each server, one running and one waiting


def picture(color: int) -> dict[str, Any]:
    """A graph without models: one small picture."""
    size = {"width": 64, "height": 64, "batch_size": 1, "color": color}
    return {
        "1": {"class_type": "EmptyImage", "inputs": size},
        "2": {"class_type": "SaveImage", "inputs": {"images": ["1", 0], "filename_prefix": f"p{color}"}},
    }


async def bare(servers: list[str], jobs: int) -> None:
    """Submit, wait on the socket, read the history, fetch the picture; nothing is kept."""
    colors = iter(range(1, jobs + 1))
    async with asyncio.TaskGroup() as group:
        for url in servers:
            group.create_task(_bare_server(url, colors))


async def _bare_server(url: str, colors: Iterator[int]) -> None:
    client_id = uuid.uuid4().hex
    ended: dict[str, asyncio.Event] = {}
    async with (
        connect(f"ws{url.removeprefix('http')}/ws?clientId={client_id}", proxy=None) as socket,
        httpx.AsyncClient(base_url=url, trust_env=False) as http,
    ):

        async def read() -> None:
            async for frame in socket:
                message = json.loads(frame) if isinstance(frame, str) else {}
                data = message.get("data", {})
                if message.get("type") == "executing" and data.get("node") is None:
                    ended[data["prompt_id"]].set()

        async def work() -> None:
            for color in colors:
                prompt_id = str(uuid.uuid4())
                ended[prompt_id] = asyncio.Event()
                body = {"prompt": picture(color), "prompt_id": prompt_id, "client_id": client_id}
                (await http.post("/prompt", json=body)).raise_for_status()
                await ended[prompt_id].wait()
                await _fetch(http, prompt_id)

        reader = asyncio.create_task(read())
        await asyncio.gather(*(work() for _ in range(IN_FLIGHT)))
        reader.cancel()


async def _fetch(http: httpx.AsyncClient, prompt_id: str) -> None:
    entry: dict[str, Any] = {}
    while not entry:  # it follows the socket's word by some milliseconds
        entry = (await http.get(f"/history/{prompt_id}")).json()
    for output in entry[prompt_id]["outputs"].values():
        for image in output["images"]:
            query = {key: image[key] for key in ("filename", "subfolder", "type")}
            answer = await http.get("/view", params=query)
            if not answer.content.startswith(b"\x89PNG"):
                raise ValueError(image)


async def ours(servers: list[str], jobs: int, folder: Path, ledger_url: str) -> None:
    """The runner without Prefect, from preflight to synced outputs."""
    (folder / "picture.json").write_text(json.dumps(picture(0)))
    lines = [{"workflow": "picture.json", "set": {"1.color": color}} for color in range(1, jobs + 1)]
    (folder / "jobs.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    request = RenderRequest(
        job_file=str(folder / "jobs.jsonl"),
        out=str(folder / "out"),
        servers=tuple(servers),
        cache_dir=folder / "cache",
        host="bench",
    )
    async with await open_ledger(ledger_url) as ledger:
        await render_here(
            request, ledger, settings=read_settings({"COMFYFARM_STATE_DIR": str(folder / "state")})
        )
        (batch,) = await ledger.batches()
        counts = await ledger.counts(batch.name)
    if counts != {"succeeded": jobs}:
        raise ValueError(counts)


async def collect_one(url: str, folder: Path) -> None:
    """Bring one output home, as the runner does."""
    entry = HistoryEntry(
        outputs={"2": {"video": [{"filename": "long.mp4", "subfolder": "", "type": "output"}]}}
    )
    async with ComfyClient(url) as client:
        await collect(client, entry, job_id=JobId("job"), spool=Spool(folder), clock=SystemClock())


def main(side: str) -> None:
    """Run one side, and say what it cost."""
    given = json.load(sys.stdin)
    servers, jobs, folder = given["servers"], given["jobs"], Path(given["folder"])
    sides = {
        "bare": lambda: bare(servers, jobs),
        "ours": lambda: ours(servers, jobs, folder, given["ledger"]),
        "collect": lambda: collect_one(servers[0], folder),
    }
    work = sides[side]()
    before = _cpu_s()
    asyncio.run(work)
    peak_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(json.dumps({"cpu_s": _cpu_s() - before, "peak_mib": peak_kib / 1024}))


def _cpu_s() -> float:
    """User and system time of this process and its children."""
    whose = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    return sum(used.ru_utime + used.ru_stime for used in map(resource.getrusage, whose))


if __name__ == "__main__":
    main(sys.argv[1])
