"""Workers: calls of `comfyfarm render` on one batch, made again as long as it is not finished."""

import asyncio
import contextlib
import resource
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from infra.chaos.fakes import ROOT
from infra.chaos.processes import Group, start_group

_AGAIN_S = 0.3
_LIMIT_BYTES = 64
"""Less than any output has."""
_TMPFS_MIB = 16


class Worker:
    """One of them. It has a state directory of its own, as on a host of its own."""

    def __init__(
        self, number: int, command: Sequence[str], *, folder: Path, environ: Mapping[str, str]
    ) -> None:
        self.number = number
        self._folder = folder / f"worker-{number}"
        self.state_dir = self._folder / "state"
        self.state_dir.mkdir(parents=True)
        self.log = self._folder / "worker.log"
        self._command = list(command)
        self._environ = {
            **environ,
            "COMFYFARM_STATE_DIR": str(self.state_dir),
            "COMFYFARM_CACHE_DIR": str(self._folder / "cache"),
            "PREFECT_HOME": str(self._folder / "prefect"),
        }
        self.exits: Counter[int] = Counter()
        """How its calls ended: exit codes, or minus the number of the signal."""
        self.is_held = False
        """Frozen on purpose for so long that nothing else may touch it."""
        self.is_limited = False
        self.has_tmpfs = False
        self._groups: list[Group] = []

    async def keep_going(self, finished: asyncio.Event) -> None:
        """Call it, and again whenever it ends, until the batch is finished."""
        while True:
            group = await start_group(self._command, log=self.log, cwd=ROOT, environ=self._environ)
            self._groups.append(group)
            self._limit()
            code = await group.wait()
            self.exits[code] += 1
            group.note(f"ended with {code}")
            if finished.is_set():
                return
            await asyncio.sleep(_AGAIN_S)

    async def end(self) -> None:
        """Kill whatever is left of all its calls, and give its file system back."""
        await asyncio.gather(*(group.end() for group in self._groups))
        if self.has_tmpfs:
            await asyncio.to_thread(subprocess.run, ["umount", str(self.state_dir)], check=False)

    def send(self, number: signal.Signals, *, alone: bool = False) -> None:
        """A signal to its newest call: to all its processes, or to the command alone."""
        if self._groups:
            self._groups[-1].send(number, alone=alone)

    def thaw(self) -> None:
        """Let every call of it go on."""
        for group in self._groups:
            group.send(signal.SIGCONT)

    def set_limit(self, *, on: bool) -> None:
        """Whether it can write more than a few bytes to a file."""
        self.is_limited = on
        self._limit()

    def mount_tmpfs(self) -> bool:
        """Put its state directory on a small file system of its own; False where that is not allowed."""
        command = ["mount", "-t", "tmpfs", "-o", f"size={_TMPFS_MIB}m", "tmpfs", str(self.state_dir)]
        with contextlib.suppress(OSError):
            self.has_tmpfs = subprocess.run(command, capture_output=True, check=False).returncode == 0
        return self.has_tmpfs

    async def fill_disk(self, seconds: float) -> None:
        """Leave no byte free in its state directory for so long, whatever it removes meanwhile.

        Raises:
            RuntimeError: it has no file system of its own, and the machine's is not to be filled.
        """
        if not self.has_tmpfs:
            raise RuntimeError(f"{self.state_dir} is on the machine's own disk")
        end = time.monotonic() + seconds
        filler = self.state_dir / "filler"
        try:
            with filler.open("ab", buffering=0) as file:
                while time.monotonic() < end:
                    with contextlib.suppress(OSError):
                        while True:
                            file.write(bytes(4096))
                    await asyncio.sleep(0.05)
        finally:
            filler.unlink(missing_ok=True)

    def _limit(self) -> None:
        if not self._groups or self._groups[-1].is_over:
            return
        pid, hard = self._groups[-1].process.pid, resource.RLIM_INFINITY
        soft = _LIMIT_BYTES if self.is_limited else hard
        with contextlib.suppress(ProcessLookupError):
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (soft, hard))
