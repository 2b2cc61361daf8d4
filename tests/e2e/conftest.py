"""The installed command, in subprocesses, against fakes in processes of their own."""

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from comfyfarm.clock import pause
from infra.comfy_servers import Served, fake_comfy

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = str(Path(sys.executable).with_name("comfyfarm"))
WORKFLOW = ROOT / "infra" / "demo_data" / "model_free.json"


@dataclass
class Farm:
    """A project of its own, two fakes, and the command with its environment."""

    folder: Path
    servers: list[Served]
    environment: dict[str, str]
    started: list["subprocess.Popen[bytes]"] = field(default_factory=list)

    def jobs(self, count: int) -> Path:
        lines = [{"workflow": str(WORKFLOW), "set": {"1.color": 1000 + n}} for n in range(count)]
        path = self.folder / "jobs.jsonl"
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        return path

    def command(self, *arguments: str) -> list[str]:
        servers = [word for server in self.servers for word in ("--server", server.url)]
        return [PROGRAM, "render", str(self.folder / "jobs.jsonl"), "--json", *servers, *arguments]

    def run(self, *arguments: str, timeout_s: float = 120) -> "subprocess.CompletedProcess[str]":
        out = ["--out", str(self.folder / "out")]
        return subprocess.run(
            self.command(*out, *arguments),
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=timeout_s,
        )

    def start(self, *arguments: str) -> "subprocess.Popen[bytes]":
        """In a process group of its own, so that a test can kill all of it."""
        with (self.folder / "render.log").open("ab") as log:
            process = subprocess.Popen(
                self.command("--out", str(self.folder / "out"), *arguments),
                env=self.environment,
                stdout=subprocess.DEVNULL,
                stderr=log,
                start_new_session=True,
            )
        self.started.append(process)
        return process

    def prompts(self) -> list[dict[str, Any]]:
        """What the fakes accepted, all together."""
        found: list[dict[str, Any]] = []
        for server in self.servers:
            found += httpx.get(f"{server.url}/fake/log", timeout=10).json()
        return found

    def wait_for_prompts(self, ended: int, process: "subprocess.Popen[bytes]", timeout_s: float = 90) -> None:
        end = time.monotonic() + timeout_s
        while sum(1 for prompt in self.prompts() if prompt["ended"]) < ended:
            assert process.poll() is None, (self.folder / "render.log").read_text()[-3000:]
            assert time.monotonic() < end, (self.folder / "render.log").read_text()[-3000:]
            pause(0.05)

    def left_over(self) -> list[Any]:
        """What the fakes still run or hold in their queues, and prompts that have begun and not ended.

        Not every prompt that was accepted ends: one that is taken off a queue never began.
        """
        found: list[Any] = [prompt for prompt in self.prompts() if prompt["started"] and not prompt["ended"]]
        for server in self.servers:
            queue = httpx.get(f"{server.url}/queue", timeout=10).json()
            found += [entry[:2] for entry in (*queue["queue_running"], *queue["queue_pending"])]
        return found

    def wait_until_idle(self, timeout_s: float = 10) -> None:
        """A fake's own book-keeping comes a moment after the queue's."""
        end = time.monotonic() + timeout_s
        while left := self.left_over():
            assert time.monotonic() < end, left
            pause(0.05)

    def twice(self) -> list[str]:
        counts = Counter(prompt["prompt_id"] for prompt in self.prompts())
        return [prompt_id for prompt_id, count in counts.items() if count > 1]

    def outputs(self) -> list[Path]:
        return [path for path in (self.folder / "out").rglob("*") if path.is_file()]


def end(process: "subprocess.Popen[bytes]") -> None:
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(10)


@pytest.fixture(scope="session")
def control_env(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """An environment whose control server stays up for all of these tests."""
    state = tmp_path_factory.mktemp("state")
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("PREFECT_", "COMFYFARM_"))}
    environment = {**kept, "COMFYFARM_STATE_DIR": str(state), "PREFECT_HOME": str(state / "home")}
    subprocess.run([PROGRAM, "control", "start"], env=environment, check=True, stdout=subprocess.DEVNULL)
    try:
        yield environment
    finally:
        subprocess.run([PROGRAM, "control", "stop"], env=environment, check=True, stdout=subprocess.DEVNULL)


@pytest.fixture
def farm(tmp_path: Path, control_env: dict[str, str]) -> Iterator[Farm]:
    with ExitStack() as stack:
        servers = [
            stack.enter_context(fake_comfy(prompt_seconds=0.3, log=tmp_path / "fakes.log")) for _ in range(2)
        ]
        built = Farm(folder=tmp_path, servers=servers, environment=control_env)
        try:
            yield built
        finally:
            for process in built.started:
                end(process)
