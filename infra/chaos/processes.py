"""Processes that are killed, frozen and started again; none of them outlives us."""

import asyncio
import contextlib
import ctypes
import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

_LINE_LIMIT = 1 << 20
_POLL_S = 0.02
_PR_SET_PDEATHSIG = 1


class Group:
    """A command in a process group of its own; what it says goes to a log, each line with its time.

    By a pipe, so that a limit on the size of its files, or a full disk, costs us no words of it.
    """

    def __init__(self, process: asyncio.subprocess.Process, said: asyncio.StreamReader, log: Path) -> None:
        self.process = process
        self._said, self._log = said, log
        self.first_line: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._reader = asyncio.create_task(self._read())

    @property
    def is_over(self) -> bool:
        """Whether its first process has ended."""
        return self.process.returncode is not None

    async def wait(self) -> int:
        """Its first process's exit code, as soon as it has ended.

        asyncio's own `wait` waits for the pipe's end, too, which children of it may keep open.
        """
        while self.process.returncode is None:  # noqa: ASYNC110 - nothing else tells
            await asyncio.sleep(_POLL_S)
        return self.process.returncode

    def send(self, number: signal.Signals, *, alone: bool = False) -> None:
        """Send a signal to all of it, or to its first process alone."""
        with contextlib.suppress(ProcessLookupError):
            if not alone:
                os.killpg(self.process.pid, number)
            elif not self.is_over:
                self.process.send_signal(number)

    def note(self, text: str) -> None:
        """Write a line of our own into its log."""
        with self._log.open("a", encoding="utf-8") as log:
            log.write(f"{time.time():.3f} -- {text}\n")

    async def end(self) -> None:
        """Kill whatever is left of it."""
        self.send(signal.SIGKILL)
        await self.wait()
        self._reader.cancel()
        await asyncio.gather(self._reader, return_exceptions=True)

    async def _read(self) -> None:
        with self._log.open("ab") as log:
            while line := await self._said.readline():
                if not self.first_line.done():
                    self.first_line.set_result(line.decode(errors="replace"))
                log.write(f"{time.time():.3f} ".encode() + line)
                log.flush()
        if not self.first_line.done():
            self.first_line.set_result("")


async def start_group(
    command: Sequence[str], *, log: Path, cwd: Path, environ: Mapping[str, str] | None = None
) -> Group:
    """Start a command in a group of its own, with stdout and stderr in `log`."""
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=cwd,
        env=environ,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        start_new_session=True,
        limit=_LINE_LIMIT,
        preexec_fn=_die_with_us,
    )
    if process.stdout is None:
        raise RuntimeError("a pipe was asked for")
    return Group(process, process.stdout, log)


def _die_with_us() -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
