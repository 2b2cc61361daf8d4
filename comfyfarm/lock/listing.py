"""A catalogue as a value: files with their content, looked up by folder and path."""

from collections.abc import Iterable, Iterator
from functools import cached_property

from pydantic import BaseModel, ConfigDict, NonNegativeInt

from comfyfarm.errors import CatalogueError
from comfyfarm.ids import Sha256
from comfyfarm.lock.paths import SafeFolder, SafePath
from comfyfarm.workflow.folders import modern


class CatalogueEntry(BaseModel):
    """One file of a catalogue."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    folder: SafeFolder
    path: SafePath
    sha256: Sha256
    size: NonNegativeInt
    """In bytes."""
    sources: tuple[str, ...] = ()
    """Addresses or paths that have the file."""

    @property
    def key(self) -> tuple[str, str]:
        """Folder by its name of today, and path: `clip` and `text_encoders` are one place."""
        return (modern(self.folder), self.path)


class Catalogue(BaseModel):
    """All entries, each name once."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    entries: tuple[CatalogueEntry, ...] = ()

    def get(self, folder: str, path: str) -> CatalogueEntry | None:
        """The entry of that name, whether listed under the folder's old or new key."""
        return self._by_key.get((modern(folder), path))

    def in_folder(self, folder: str) -> tuple[CatalogueEntry, ...]:
        """All entries of a folder."""
        return tuple(entry for entry in self.entries if entry.key[0] == modern(folder))

    def named(self, path: str) -> tuple[CatalogueEntry, ...]:
        """All entries of that path, whatever their folder."""
        return tuple(entry for entry in self.entries if entry.path == path)

    @cached_property
    def _by_key(self) -> dict[tuple[str, str], CatalogueEntry]:
        return {entry.key: entry for entry in self.entries}


def collect(entries: Iterable[CatalogueEntry], *, name: str) -> Catalogue:
    """A catalogue of these entries; equal ones become one, with the sources of all.

    Raises:
        CatalogueError: one name stands for two contents; all such names are given.
    """
    found: dict[tuple[str, str], CatalogueEntry] = {}
    problems: list[str] = []
    for entry in entries:
        known = found.get(entry.key)
        if known is None:
            found[entry.key] = entry
        elif (known.sha256, known.size) == (entry.sha256, entry.size):
            sources = tuple(dict.fromkeys([*known.sources, *entry.sources]))
            found[entry.key] = known.model_copy(update={"sources": sources})
        else:
            problems.extend(_clash(known, entry))
    if problems:
        raise CatalogueError("\n".join(f"{name}: {problem}" for problem in problems))
    return Catalogue(entries=tuple(found.values()))


def merge(catalogues: Iterable[Catalogue]) -> Catalogue:
    """Several catalogues as one.

    Raises:
        CatalogueError: one name stands for two contents.
    """
    return collect((entry for each in catalogues for entry in each.entries), name="the catalogues together")


def _clash(known: CatalogueEntry, other: CatalogueEntry) -> Iterator[str]:
    yield (
        f"{known.folder}/{known.path} is listed with two contents, {known.sha256[:12]}… of {known.size} "
        f"bytes and {other.sha256[:12]}… of {other.size} bytes; keep the one that is meant"
    )
