"""What the server accepted and how it ended, in memory, and in a file that outlives the process.

One JSON line for each event, written and flushed before the outside can learn of it by an answer.
"""

import json
import time
import uuid
from pathlib import Path
from typing import Any, TextIO


class Journal:
    """The log of accepted prompts, earlier lives of the same file included."""

    def __init__(self, path: Path | None = None) -> None:
        self._life = uuid.uuid4().hex
        self._entries: dict[str, dict[str, Any]] = {}
        self._path = path
        self._file: TextIO | None = None
        if path is not None and path.is_file():
            self._read(path)

    def received(self, prompt_id: str, client_id: Any) -> str:
        """Note a prompt as accepted; the answer is the key of its later events."""
        key = f"{self._life}-{len(self._entries)}"
        self._write({"key": key, "prompt_id": prompt_id, "client_id": client_id, "received": time.time()})
        return key

    def started(self, key: str) -> None:
        """Note that the prompt began to run."""
        self._write({"key": key, "started": time.time()})

    def ended(self, key: str, end: str) -> None:
        """Note the end: `success`, `error` or `interrupted`."""
        self._write({"key": key, "ended": time.time(), "end": end})

    def entries(self) -> list[dict[str, Any]]:
        """One object for each accepted prompt, in the order of acceptance. Times are Unix seconds."""
        return [dict(entry) for entry in list(self._entries.values())]

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _write(self, event: dict[str, Any]) -> None:
        self._apply(event)
        if self._path is not None:
            self._file = self._file or _opened(self._path)
            self._file.write(json.dumps(event) + "\n")
            self._file.flush()

    def _apply(self, event: dict[str, Any]) -> None:
        blank = {
            "prompt_id": None,
            "client_id": None,
            "received": None,
            "started": None,
            "ended": None,
            "end": None,
        }
        entry = self._entries.setdefault(event["key"], blank)
        entry.update({name: value for name, value in event.items() if name != "key"})

    def _read(self, path: Path) -> None:
        for line in path.read_text(encoding="utf-8").splitlines():
            # The last line of a life that was killed may be cut short.
            if line.startswith("{") and line.endswith("}"):
                self._apply(json.loads(line))


def _opened(path: Path) -> TextIO:
    path.parent.mkdir(parents=True, exist_ok=True)
    is_cut = path.is_file() and path.stat().st_size > 0 and not path.read_bytes().endswith(b"\n")
    file = path.open("a", encoding="utf-8")
    file.write("\n" if is_cut else "")
    return file
