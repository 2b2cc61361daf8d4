"""Our uploads in a process of their own: `python -m benchmarks.hydrate_upload_side FILE`.

The file holds as JSON: address, files (name, file, sha256, size), and many: whether they go up together, as
outputs do, or one after another.
"""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from comfyfarm.cache.places.place import PutFile


async def main(given: dict[str, Any]) -> None:
    """Put all of them."""
    from comfyfarm.cache.places.objects import open_place

    place = open_place(given["address"])
    files = [PutFile(**{**file, "file": Path(file["file"])}) for file in given["files"]]
    if given["many"]:
        await place.put_all(files, ("provenance.json", b"{}"), guard=lambda: None)
        return
    for file in files:
        await place.put_file(file, mode="create")


if __name__ == "__main__":
    asyncio.run(main(json.loads(Path(sys.argv[1]).read_bytes())))
