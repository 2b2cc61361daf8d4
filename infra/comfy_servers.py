"""ComfyUI servers as processes of their own: the fake, or a real one on the CPU."""

import os
import select
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
_START_S = 300.0  # a real one imports torch


@dataclass(frozen=True)
class Served:
    """A server that answers."""

    url: str
    process: "subprocess.Popen[bytes]"


@contextmanager
def fake_comfy(
    *,
    models_dir: Path | None = None,
    prompt_seconds: float = 0.0,
    script: str = "ok",
    journal: Path | None = None,
    log: Path,
    port: int = 0,
) -> Iterator[Served]:
    """A fake ComfyUI in a process of its own."""
    command = [sys.executable, "-m", "fake_server", "comfy", "--port", str(port), "--script", script]
    command += ["--prompt-seconds", str(prompt_seconds)]
    if models_dir is not None:
        models_dir.mkdir(parents=True, exist_ok=True)
        command += ["--models-dir", str(models_dir)]
    if journal is not None:
        command += ["--journal", str(journal)]
    with log.open("ab") as errors:
        process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=errors)
    try:
        yield Served(url=_first_url(process, log), process=process)
    finally:
        _end(process)


def _first_url(process: "subprocess.Popen[bytes]", log: Path) -> str:
    line = ""
    if process.stdout is not None and select.select([process.stdout], [], [], 60.0)[0]:
        line = process.stdout.readline().decode()
    found = next((word for word in line.split() if word.startswith("http://")), None)
    if found is None:
        _end(process)
        raise RuntimeError(f"the fake server did not start; see {log}")
    return found.rstrip("/")


@contextmanager
def real_comfy(directory: Path, python: str, base: Path) -> Iterator[Served]:
    """A real ComfyUI on the CPU, with folders of its own, on a free port."""
    for folder in ("custom_nodes", "models", "input", "output", "user"):
        (base / folder).mkdir(parents=True, exist_ok=True)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [python, str(directory / "main.py"), "--cpu", "--listen", "127.0.0.1", "--port", str(port)]
    command += ["--base-directory", str(base), "--database-url", f"sqlite:///{base / 'comfyui.db'}"]
    command += ["--disable-auto-launch", "--disable-api-nodes"]
    with (base / "comfyui.log").open("wb") as log:
        process = subprocess.Popen(
            command, stdout=log, stderr=log, start_new_session=True, env={**os.environ, "PYTHONPATH": ""}
        )
    try:
        _wait_for(f"http://127.0.0.1:{port}", process, base / "comfyui.log")
        yield Served(url=f"http://127.0.0.1:{port}", process=process)
    finally:
        _end(process)


def _wait_for(url: str, process: "subprocess.Popen[bytes]", log: Path) -> None:
    end = time.monotonic() + _START_S
    while time.monotonic() < end and process.poll() is None:
        try:
            with urllib.request.urlopen(f"{url}/system_stats", timeout=2):  # noqa: S310 - loopback
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.5)
    raise RuntimeError(f"ComfyUI did not start; see {log}")


def _end(process: "subprocess.Popen[bytes]") -> None:
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(10)
    if process.stdout is not None:
        process.stdout.close()
