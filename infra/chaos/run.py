"""One run: start everything, let the storm loose until the batch is finished, then look at what is left."""

import asyncio
import contextlib
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from itertools import cycle
from pathlib import Path
from random import Random

from pydantic import BaseModel, ConfigDict, PositiveFloat, PositiveInt

from comfyfarm.errors import FarmError
from comfyfarm.ledger.ledger import Ledger, open_ledger
from infra.chaos.batch import Planned, plan_jobs, write_jobs
from infra.chaos.control import Control
from infra.chaos.evidence import gather
from infra.chaos.fakes import Fake, free_ports
from infra.chaos.fault_log import FaultLog
from infra.chaos.figures import Figure
from infra.chaos.left_out import away_for_nothing, has_cause, left_out_servers
from infra.chaos.storm import FULL, SHORT, Storm
from infra.chaos.strikes import Strikes
from infra.chaos.telling import how_it_was
from infra.chaos.verdict import verdict
from infra.chaos.workers import Worker

BATCH = "chaos"
_PROMPT_S = (1.5, 1.2, 0.9, 0.6)
_SHORT_PROMPT_S = (0.6, 0.5, 0.4)
_PROGRAM = str(Path(sys.executable).with_name("comfyfarm"))
_TELL_S = 10.0
_IDLE_S = 20.0
_WORKERS_END_S = 120.0


class Options(BaseModel):
    """What the command was called with."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    folder: Path
    is_short: bool
    jobs: PositiveInt
    servers: PositiveInt
    workers: PositiveInt
    seed: int
    limit_s: PositiveFloat
    keep: bool


class Farm(BaseModel):
    """All that was started."""

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)

    control: Control
    fakes: tuple[Fake, ...]
    workers: tuple[Worker, ...]
    ledger: Ledger


async def run(options: Options) -> tuple[Figure, ...]:
    """The figures of one run. SIGTERM ends it as Ctrl-C does: nothing is left running, or mounted."""
    task = asyncio.current_task()
    if task is not None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    random = Random(options.seed)
    jobs = plan_jobs(options.jobs, random)
    write_jobs(jobs, options.folder / "jobs.jsonl")
    log = FaultLog(options.folder / "faults.log")
    async with _farm(options, random) as farm:
        strikes = Strikes(farm.fakes, farm.workers, farm.control, log)
        storm = Storm(strikes, random, SHORT if options.is_short else FULL)
        late = await _until_finished(farm, storm, jobs, options, log)
        await _until_idle(farm.fakes)
        journals = [(fake.url, fake.journal) for fake in farm.fakes]
        evidence = await gather(farm.ledger, BATCH, journals=journals, out=options.folder / "out")
    (options.folder / "evidence.json").write_text(evidence.model_dump_json(indent=1), encoding="utf-8")
    log.close()
    logs = {worker.number: worker.log.read_text(errors="replace") for worker in farm.workers}
    told = how_it_was(options.seed, storm.seconds, log.all, farm.workers, farm.fakes, late, logs=logs)
    left_out = left_out_servers(logs)
    causes = (*log.all, *(one for one in left_out if has_cause(one, log.all)))
    return (*told, away_for_nothing(left_out, log.all), *verdict(jobs, evidence, causes))


async def _until_finished(
    farm: Farm, storm: Storm, jobs: Sequence[Planned], options: Options, log: FaultLog
) -> tuple[str, ...]:
    """Let workers and storm go until the batch is finished; the workers that then did not end."""
    finished = asyncio.Event()
    going = [asyncio.create_task(worker.keep_going(finished)) for worker in farm.workers]
    raging = asyncio.create_task(storm.rage())
    try:
        try:
            async with asyncio.timeout(options.limit_s):
                await _watch(farm.ledger, len(jobs), raging, log)
        except TimeoutError:
            print(f"given up after {options.limit_s:g} s", file=sys.stderr, flush=True)
        finished.set()
        storm.end()
        await raging
        for worker in farm.workers:
            worker.thaw()
        _, still = await asyncio.wait(going, timeout=_WORKERS_END_S)
    finally:
        # Also when we are told to stop: nothing may be started, or broken, while all is being ended.
        await storm.abort()
        for task in (raging, *going):
            task.cancel()
        await asyncio.gather(raging, *going, return_exceptions=True)
    return tuple(
        f"worker {worker.number}" for worker, task in zip(farm.workers, going, strict=True) if task in still
    )


async def _watch(ledger: Ledger, count: int, raging: "asyncio.Task[None]", log: FaultLog) -> None:
    """Return when the ledger says that all is finished."""
    begun = told = time.monotonic()
    while not raging.done():
        counts: dict[str, int] = {}
        with contextlib.suppress(FarmError):
            counts = await ledger.counts(BATCH)
        if sum(counts.get(status, 0) for status in ("succeeded", "dead", "cancelled")) == count:
            return
        now = time.monotonic()
        if now - told >= _TELL_S:
            told = now
            print(f"{now - begun:4.0f} s {counts}, {len(log.all)} faults", file=sys.stderr, flush=True)
        await asyncio.sleep(0.3)
    raging.result()


async def _until_idle(fakes: Sequence[Fake]) -> None:
    """Prompts that nobody waits for any more count, too: let them be run."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_IDLE_S):
            while not all(await asyncio.gather(*(fake.is_idle() for fake in fakes))):  # noqa: ASYNC110
                await asyncio.sleep(0.2)


@asynccontextmanager
async def _farm(options: Options, random: Random) -> AsyncIterator[Farm]:
    """Everything started, and ended whatever happens."""
    *ports, prefect_port = free_ports(options.servers + 1, random)
    control = Control(options.folder / "control", prefect_port=None if options.is_short else prefect_port)
    prompts_s = cycle(_SHORT_PROMPT_S if options.is_short else _PROMPT_S)
    fakes = tuple(
        Fake(number, folder=options.folder, port=port, prompt_s=prompt_s)
        for number, (port, prompt_s) in enumerate(zip(ports, prompts_s, strict=False))
    )
    workers: tuple[Worker, ...] = ()
    keeping = [asyncio.create_task(fake.keep_up()) for fake in fakes]
    try:
        await asyncio.gather(control.start(), *(fake.is_up.wait() for fake in fakes))
        workers = tuple(_worker(number, options, control, fakes) for number in range(options.workers))
        workers[-1].mount_tmpfs()
        async with await open_ledger(control.ledger_url) as ledger:
            yield Farm(control=control, fakes=fakes, workers=workers, ledger=ledger)
    finally:
        await asyncio.gather(*(worker.end() for worker in workers))
        for task in keeping:
            task.cancel()
        await asyncio.gather(*keeping, return_exceptions=True)
        await control.stop()


def _worker(number: int, options: Options, control: Control, fakes: Sequence[Fake]) -> Worker:
    """The first one is under Prefect where there is a Prefect."""
    command = [_PROGRAM, "render", str(options.folder / "jobs.jsonl"), "--batch", BATCH]
    command += ["--out", str(options.folder / "out"), "--ledger", control.ledger_url]
    command += [word for fake in fakes for word in ("--server", fake.url)]
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("PREFECT_", "COMFYFARM_"))}
    if number == 0 and control.api_url is not None:
        kept["PREFECT_API_URL"] = control.api_url
    else:
        command.append("--local")
    return Worker(number, command, folder=options.folder, environ=kept)
