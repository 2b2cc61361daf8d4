"""What was broken, where and when: a file of JSON lines, and the values for the verdict."""

import time
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from infra.chaos.kinds import Kind


class Struck(BaseModel):
    """One fault that was injected."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Kind
    server: str | None = None
    """Address of the server; None when it strikes all of them, or a worker."""
    worker: int | None = None
    begun: float
    """Unix seconds."""
    over: float | None = None
    """When it was undone or used up; None while it may still strike."""

    @property
    def name(self) -> str:
        """What it was, and of what."""
        return f"{self.kind.at} {self.kind.name}"

    def strikes(self, server: str, begun: float, ended: float, *, slack_s: float) -> bool:
        """Whether it can have been felt on a server in a stretch of time."""
        over = float("inf") if self.over is None else self.over + self.kind.tail_s
        is_there = self.server is None or self.server == server
        return is_there and self.begun <= ended + slack_s and over >= begun - slack_s


class FaultLog:
    """Grows while the storm lasts."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("a", encoding="utf-8")
        self._began = 0
        self._all: dict[int, Struck] = {}

    @property
    def all(self) -> tuple[Struck, ...]:
        """Every fault, in the order of its beginning."""
        return tuple(self._all.values())

    def begin(self, kind: Kind, *, server: str | None = None, worker: int | None = None) -> int:
        """Note a fault just before it is done; the answer is what `end` wants."""
        struck = Struck(kind=kind, server=server, worker=worker, begun=time.time())
        self._began += 1
        self._all[self._began] = struck
        self._write(f"{struck.begun:.3f} {struck.name} {server or ''}{'' if worker is None else worker}")
        return self._began

    def end(self, place: int) -> None:
        """Note that it is undone; a second time changes nothing."""
        struck = self._all.get(place)
        if struck is not None and struck.over is None:
            self._all[place] = struck.model_copy(update={"over": time.time()})
            self._write(f"{time.time():.3f} over: {struck.name} of {struck.begun:.3f}")

    def forget(self, place: int) -> None:
        """It could not be done."""
        struck = self._all.pop(place)
        self._write(f"{time.time():.3f} not done: {struck.name} of {struck.begun:.3f}")

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _write(self, line: str) -> None:
        self._file.write(line + "\n")
        self._file.flush()
