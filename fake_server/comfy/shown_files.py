"""Files as a prompt shows them where its script says so: under odd names, or not to be had.

Source: field reports of outputs that history lists and /view does not give, and of names that hurt.
"""

from pathlib import Path
from typing import Any

from fake_server.comfy.behaviours import VIEW, Acts, Behaviour
from fake_server.comfy.places import Places

Key = tuple[str, str, str]
_LONG = 300
_NAMES = frozenset(
    {
        Behaviour.NAME_SPACES,
        Behaviour.NAME_UNICODE,
        Behaviour.NAME_DOTDOT,
        Behaviour.NAME_ABSOLUTE,
        Behaviour.NAME_LONG,
    }
)


class ShownFiles:
    """The files that /view treats unlike others."""

    def __init__(self, places: Places) -> None:
        self._places = places
        self._paths: dict[Key, Path] = {}
        self._faults: dict[Key, list[Any]] = {}

    def show(self, ui: dict[str, Any], acts: Acts) -> dict[str, Any]:
        """A node's UI output with the names that the script gives to its files."""
        return {key: self._shown(items, acts) for key, items in ui.items()}

    def path(self, kind: str, subfolder: str, filename: str) -> Path | None:
        """The true file under a name that was given to it."""
        return self._paths.get((kind, subfolder, filename))

    def fault(self, kind: str, subfolder: str, filename: str) -> Behaviour | None:
        """What is to go wrong with this request for the file; each has its number of times."""
        fault = self._faults.get((kind, subfolder, filename))
        if fault is None or fault[1] <= 0:
            return None
        fault[1] -= 1
        word: Behaviour = fault[0]
        return word

    def _shown(self, items: Any, acts: Acts) -> Any:
        if not isinstance(items, list):
            return items
        return [self._entry(item, acts) if isinstance(item, dict) else item for item in items]

    def _entry(self, entry: dict[str, Any], acts: Acts) -> dict[str, Any]:
        if "filename" not in entry:
            return entry
        name = odd_name(entry["filename"], acts.any_of(_NAMES))
        shown = entry | {"filename": name}
        key = (entry.get("type", "output"), entry.get("subfolder", ""), name)
        root = self._places.by_type(key[0])
        if name != entry["filename"] and root is not None:
            self._paths[key] = root / key[1] / entry["filename"]
        word = acts.any_of(VIEW)
        self._faults.pop(key, None)
        if word is not None:
            self._faults[key] = [word, acts.number(word, float("inf"))]
        return shown


def odd_name(name: str, word: Behaviour | None) -> str:
    """A name that hurts, with the extension that it had."""
    path = Path(name)
    return (
        {
            Behaviour.NAME_SPACES: f" two  spaces & #{name}",
            Behaviour.NAME_UNICODE: f"Grüße_картинка_画像_\N{ARTIST PALETTE}_{name}",
            Behaviour.NAME_DOTDOT: f"../../../{name}",
            Behaviour.NAME_ABSOLUTE: f"/tmp/fake-comfy-absolute/{name}",  # noqa: S108 - never written by us
            Behaviour.NAME_LONG: path.stem + "x" * (_LONG - len(name)) + path.suffix,
        }.get(word, name)
        if word is not None
        else name
    )
