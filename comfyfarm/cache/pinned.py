"""What the cache needs to know of a model file. A locked model of the lock has it, and more."""

from typing import Protocol

PART_BYTES = 16 << 20
"""Of the parts whose SHA-256 a mirror keeps, and in which a damaged file is mended and a large one sent."""


class Pinned(Protocol):
    """One model file, known by its content."""

    @property
    def sha256(self) -> str:
        """64 lower-case hexadecimal digits."""
        ...

    @property
    def size(self) -> int:
        """Bytes."""
        ...

    @property
    def sources(self) -> tuple[str, ...]:
        """Addresses of any scheme, or paths, best first; any of them gives the same bytes."""
        ...


class Placed(Pinned, Protocol):
    """A pinned file with its place among ComfyUI's models."""

    @property
    def folder(self) -> str:
        """Key of ComfyUI's models folder, such as `checkpoints`."""
        ...

    @property
    def path(self) -> str:
        """Path inside that folder, with `/` separators."""
        ...
