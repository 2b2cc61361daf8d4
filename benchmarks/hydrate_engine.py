"""One file through one engine in a process of its own: engines beside each other, and what hashing costs.

`python -m benchmarks.hydrate_engine JSON` with which (`own`, `own unhashed`, `library`), url, size, sha256,
folder and connections leaves the file as `done` in the folder, verified and synced as the cache has it.
"""

import hashlib
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from comfyfarm.cache.transfer.landing import Landing


class _Unhashed:
    """Stands where SHA-256 does, and does nothing."""

    def __init__(self, data: bytes = b"", **_: object) -> None:
        self.update(data)

    def update(self, data: object) -> None:
        pass

    def hexdigest(self) -> str:
        return ""


def main(given: dict[str, Any]) -> None:
    """Bring the file."""
    if given["which"] == "own unhashed":
        hashlib.sha256 = _Unhashed  # type: ignore[assignment]
    from comfyfarm.cache.transfer.landing import open_landing
    from comfyfarm.cache.transfer.source import Flow

    folder, flow = Path(given["folder"]), Flow(lambda _: None)
    landing = open_landing(folder / "partial", given["size"], stop=flow.check)
    _engine(given)(landing, flow)
    found = landing.digest(flow.check)
    if given["which"] != "own unhashed" and found != given["sha256"]:
        raise SystemExit(f"other bytes: their SHA-256 is {found}")
    landing.publish(folder / "done", mode=0o444)


def _engine(given: dict[str, Any]) -> Callable[["Landing", Any], None]:
    from comfyfarm.cache.places.web import open_web

    source, size = open_web(given["url"]), given["size"]
    if given["which"] == "library":
        from comfyfarm.cache.transfer.library import pull_by_library

        return lambda landing, flow: pull_by_library(source, size, landing, flow=flow)
    from comfyfarm.cache.transfer.pull import pull

    count = given["connections"]
    return lambda landing, flow: pull(source.addressed(), size, landing, flow=flow, connections=count)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
