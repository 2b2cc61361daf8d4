"""The seam to whoever can restart a ComfyUI server."""

from typing import Protocol


class Supervisor(Protocol):
    """Restarts servers that cannot be helped otherwise."""

    async def restart(self, url: str, why: str) -> bool:
        """End the server's process, by force if need be, and start it anew.

        Returns:
            Whether it answers again; False also for a server that is not ours to restart.
        """
        ...


class Unsupervised:
    """Of servers that somebody else started: nobody here can restart them."""

    async def restart(self, url: str, why: str) -> bool:  # noqa: ARG002 - the seam's own words
        """False: such a server is quarantined."""
        return False
