"""An input that names a picture, sound, video or mesh, as the tables of loaders say it in a short form.

`file@0` is a file of the input folder and the first widget of the node; `path` is a path from where the
server was started, or an address; `url` is addresses, one a line. `file@1,0` is the second widget, or
the first in another version.
"""

from dataclasses import dataclass
from enum import StrEnum


class AssetRole(StrEnum):
    """What the value of such an input is."""

    FILE = "file"
    """A file of the input folder, with or without an annotation (`a.png [output]`)."""
    PATH = "path"
    """A path from the folder in which ComfyUI was started, such as `input/a.png`, or an address."""
    URL = "url"
    """Addresses, one a line. All other values are the node's own affair."""


@dataclass(frozen=True, slots=True)
class AssetInput:
    """One input that names such a file."""

    role: AssetRole
    places: tuple[int, ...] = ()
    """Its indices among the node's widgets, counted from 0, in one version or another."""

    @classmethod
    def read(cls, text: str) -> "AssetInput":
        """From the short form.

        Raises:
            ValueError: The text is no short form.
        """
        role, _, places = text.partition("@")
        return cls(AssetRole(role), tuple(int(place) for place in places.split(",") if place))
