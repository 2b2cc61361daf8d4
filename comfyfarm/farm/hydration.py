"""A hydration as flows hand it on: where model files go, and what became of each."""

from pathlib import Path

from pydantic import BaseModel, ConfigDict, NonNegativeFloat, NonNegativeInt

from comfyfarm.cache.byte_progress import megabytes
from comfyfarm.cache.places.objects import S3Access
from comfyfarm.clock import Clock
from comfyfarm.ids import Sha256


class Destination(BaseModel):
    """Where model files go, and where they come from."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    host: str
    """As in the tag `hydrate:<host>`."""
    cache_dir: Path
    models_dir: Path | None = None
    """Where ComfyUI looks for models: each file is linked there as soon as it is whole."""
    mirror: str | None = None
    access: S3Access | None = None
    """Credentials for the mirror; None when the environment has them."""


class ModelRow(BaseModel):
    """One model file of a hydration, as it ended."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    title: str
    """`folder/path`."""
    sha256: Sha256
    size: NonNegativeInt
    """In bytes."""
    source: str = ""
    """Where its bytes came from, masked."""
    seconds: NonNegativeFloat = 0.0
    fetched: bool = False
    """False when it was here already."""
    error: str = ""
    """Why it did not come."""

    def cells(self) -> dict[str, str]:
        """The row as a table has it."""
        rate = f"{megabytes(self.size / max(self.seconds, 1e-3))}/s" if self.fetched else ""
        return {
            "file": self.title,
            "size": megabytes(self.size),
            "source": self.source,
            "seconds": f"{self.seconds:.1f}" if self.fetched else "",
            "rate": rate,
            "state": f"failed: {self.error}" if self.error else "fetched" if self.fetched else "was here",
        }


class ByteTally:
    """All bytes of a hydration together: how far, how fast."""

    def __init__(self, total_bytes: int, *, clock: Clock) -> None:
        """`total_bytes`: that are to come, one at least."""
        self.done = 0
        self._total, self._clock = total_bytes, clock
        self._began_at = clock.monotonic()

    def add(self, count: int) -> None:
        """So many bytes more; fewer, when a source is given up."""
        self.done += count

    @property
    def percent(self) -> float:
        """From 0 to 100."""
        return min(100.0, 100.0 * max(0, self.done) / self._total)

    def text(self) -> str:
        """Such as `3.0 MB of 4.5 MB, 150.0 MB/s`."""
        came = max(0, self.done)
        rate = megabytes(came / max(self._clock.monotonic() - self._began_at, 1e-3))
        return f"{megabytes(came)} of {megabytes(self._total)}, {rate}/s"
