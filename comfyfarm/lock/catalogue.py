"""A catalogue as a value: files with their content, looked up by folder and path."""

import unicodedata
from collections import defaultdict
from collections.abc import Iterable
from functools import cached_property
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, JsonValue, NonNegativeInt

from comfyfarm.ids import Sha256
from comfyfarm.lock.lockfile import LockedRepo
from comfyfarm.lock.paths import SafeFolder, SafePath
from comfyfarm.workflow.folders import modern
from comfyfarm.workflow.model_files import WEIGHTS

Key = TypeVar("Key")


def _lowered(value: Any) -> Any:
    return value.lower() if isinstance(value, str) else value


class CatalogueEntry(BaseModel):
    """One file of a catalogue."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    folder: SafeFolder
    path: SafePath
    sha256: Annotated[Sha256, BeforeValidator(_lowered)]
    """Read in capitals, too, as Windows writes it."""
    size: NonNegativeInt
    """In bytes."""
    sources: tuple[str, ...] = ()
    """Addresses or paths that have the file."""
    header: JsonValue = None
    """Summary of the file's header, where the catalogue has one."""

    @property
    def key(self) -> tuple[str, str]:
        """Folder by its name of today, and path: `clip` and `text_encoders` are one place."""
        return (modern(self.folder), self.path)


class LooseFile(BaseModel):
    """A file of which a mirror knows only how it is called, as a rule without the folders before it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    folder: str | None
    """None where the mirror was not told."""
    sha256: Sha256
    size: NonNegativeInt
    """In bytes."""
    sources: tuple[str, ...] = ()


class Catalogue(BaseModel):
    """All entries. A name that stands for several contents has several; which is meant, the lock must say."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    entries: tuple[CatalogueEntry, ...] = ()
    loose: tuple[LooseFile, ...] = ()
    repos: tuple[LockedRepo, ...] = ()
    """Hub repositories with the revision that is meant."""
    others: tuple[str, ...] = ()
    """`folder/path` of files that are there and that nobody asked for: for hints only."""

    def get(self, folder: str, path: str) -> CatalogueEntry | None:
        """The first entry of that name, whether listed under the folder's old or new key."""
        return next(iter(self.candidates(folder, path)), None)

    def candidates(self, folder: str, path: str) -> tuple[CatalogueEntry, ...]:
        """All entries of exactly that name: more than one when it stands for several contents."""
        return tuple(self._by_key.get((modern(folder), path), ()))

    def alike(self, folder: str, path: str) -> tuple[CatalogueEntry, ...]:
        """Entries whose name is the same text in another Unicode form (NFC, NFD)."""
        return tuple(self._by_nfc.get((modern(folder), unicodedata.normalize("NFC", path)), ()))

    def in_folder(self, folder: str) -> tuple[CatalogueEntry, ...]:
        """All entries of a folder."""
        return tuple(self._by_folder.get(modern(folder), ()))

    def named(self, path: str) -> tuple[CatalogueEntry, ...]:
        """All entries of that path, whatever their folder."""
        return tuple(self._by_path.get(path, ()))

    def called(self, folder: str, name: str, *, is_base: bool) -> tuple[CatalogueEntry, ...]:
        """Entries whose path is `name` but for its suffix; with `is_base`, whose last part is."""
        return tuple(self._by_stem.get((modern(folder), is_base, name), ()))

    def of_source(self, address: str) -> tuple[CatalogueEntry, ...]:
        """All entries that name this address among their sources."""
        return tuple(self._by_source.get(address, ()))

    @cached_property
    def _by_key(self) -> dict[tuple[str, str], list[CatalogueEntry]]:
        return _grouped((entry.key, entry) for entry in self.entries)

    @cached_property
    def _by_nfc(self) -> dict[tuple[str, str], list[CatalogueEntry]]:
        return _grouped(
            ((entry.key[0], unicodedata.normalize("NFC", entry.path)), entry) for entry in self.entries
        )

    @cached_property
    def _by_folder(self) -> dict[str, list[CatalogueEntry]]:
        return _grouped((entry.key[0], entry) for entry in self.entries)

    @cached_property
    def _by_path(self) -> dict[str, list[CatalogueEntry]]:
        return _grouped((entry.path, entry) for entry in self.entries)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """`folder/path` of all that is known to be there, for hints."""
        listed = [f"{entry.key[0]}/{entry.path}" for entry in self.entries]
        loose = [f"{file.folder or '(folder not known)'}/{file.name}" for file in self.loose]
        return tuple(dict.fromkeys([*listed, *loose, *self.others]))

    @cached_property
    def _by_stem(self) -> dict[tuple[str, bool, str], list[CatalogueEntry]]:
        return _grouped(
            ((entry.key[0], is_base, name), entry)
            for entry in self.entries
            for is_base, path in ((False, entry.path), (True, entry.path.rpartition("/")[2]))
            for name in _with_and_without_suffix(path)
        )

    @cached_property
    def _by_source(self) -> dict[str, list[CatalogueEntry]]:
        return _grouped((source, entry) for entry in self.entries for source in entry.sources)


def _with_and_without_suffix(path: str) -> tuple[str, ...]:
    return (path, path.rpartition(".")[0]) if path.lower().endswith(WEIGHTS) else (path,)


def _grouped(pairs: Iterable[tuple[Key, CatalogueEntry]]) -> dict[Key, list[CatalogueEntry]]:
    found: defaultdict[Key, list[CatalogueEntry]] = defaultdict(list)
    for key, entry in pairs:
        found[key].append(entry)
    return dict(found)


def collect(entries: Iterable[CatalogueEntry]) -> Catalogue:
    """A catalogue of these entries; equal ones become one, with the sources of all."""
    found: dict[tuple[tuple[str, str], str, int], CatalogueEntry] = {}
    for entry in entries:
        place = (entry.key, entry.sha256, entry.size)
        known = found.get(place)
        if known is None:
            found[place] = entry
            continue
        sources = tuple(dict.fromkeys([*known.sources, *entry.sources]))
        header = known.header if known.header is not None else entry.header
        found[place] = known.model_copy(update={"sources": sources, "header": header})
    return Catalogue(entries=tuple(found.values()))


def merge(catalogues: Iterable[Catalogue]) -> Catalogue:
    """Several catalogues as one."""
    each = tuple(catalogues)
    repos = {(repo.id, repo.revision): repo for one in each for repo in one.repos}
    return collect(entry for one in each for entry in one.entries).model_copy(
        update={
            "loose": tuple(dict.fromkeys(file for one in each for file in one.loose)),
            "repos": tuple(repos.values()),
            "others": tuple(dict.fromkeys(name for one in each for name in one.others)),
        }
    )
