"""Which files of a catalogue one reference stands for, by its kind. Exact names first."""

import unicodedata
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple
from urllib.parse import unquote

from comfyfarm.lock.catalogue import Catalogue, CatalogueEntry, LooseFile
from comfyfarm.lock.paths import is_safe
from comfyfarm.workflow.findings import Finding, error, warning
from comfyfarm.workflow.folders import approx_vae, modern, places_on_disk
from comfyfarm.workflow.references.embeddings import SUFFIXES
from comfyfarm.workflow.references.find import Kind, Reference, Unclassified

Need = Reference | Unclassified
LORAS = "loras"
BY_BASENAME = "matched_by_basename"
"""Code of the warning that a mirror's file was found by the last part of its name alone."""


class Match(NamedTuple):
    """What was found for a reference; without entries it is missing."""

    entries: tuple[CatalogueEntry, ...] = ()
    """A key may be there more than once: then its name stands for several contents."""
    findings: tuple[Finding, ...] = ()


def match(need: Need, catalogue: Catalogue) -> Match:
    """The files that a reference stands for."""
    if isinstance(need, Unclassified):
        return Match(catalogue.named(need.path))
    if need.kind is Kind.URL:
        return Match(catalogue.of_source(need.name or ""))
    folder, path = need.folder, need.path
    if folder is None and need.kind is Kind.LORA_TEXT:
        folder = LORAS
    if need.kind is Kind.IMPLICIT and folder is not None and not path:
        return _whole_folder(need, folder, catalogue)
    if folder is None or path is None:
        return Match()
    match need.kind:
        case Kind.DIRECTORY | Kind.IMPLICIT:
            return Match(_tree(folder, path, catalogue))
        case Kind.EMBEDDING:
            return _first(_file(need, folder, path + suffix, catalogue) for suffix in ("", *SUFFIXES))
        case Kind.LORA_TEXT:
            return _by_stem(need, folder, path, catalogue)
    if folder == "vae_approx":
        return Match(_approx_vae(path, catalogue))
    return _file(need, folder, path, catalogue)


def _first(found: Iterable[Match]) -> Match:
    return next((one for one in found if one.entries), Match())


def _file(need: Reference, folder: str, path: str, catalogue: Catalogue) -> Match:
    for place, prefix in ((folder, ""), *places_on_disk(folder)):
        exact = catalogue.candidates(place, prefix + path)
        if exact:
            return Match(exact)
    alike = catalogue.alike(folder, path)
    if alike:
        return _renamed(need, folder, path, alike, "in another Unicode form")
    for other in dict.fromkeys((unquote(path), _stripped(path), _stripped(unquote(path)))):
        altered = catalogue.alike(folder, other) if other != path else ()
        if altered:
            return _renamed(need, folder, path, altered, "without the spaces or %-signs around it")
    return _loose(need, folder, path, catalogue)


def _stripped(path: str) -> str:
    return "/".join(part.strip() for part in path.split("/"))


def _renamed(need: Reference, folder: str, path: str, entries: Iterable[CatalogueEntry], how: str) -> Match:
    """The same file under the name that the workflow uses, which is the one that ComfyUI looks for."""
    found = tuple(entries)
    if not is_safe(folder, path):
        return Match()
    known = found[0].path
    finding = warning(
        "name_altered",
        f"{path!r} is {known!r} in the catalogue, {how}; it is locked under the workflow's name",
        f"write {known!r} in the workflow",
        node=need.node,
        field=need.input,
    )
    update = {"folder": modern(folder), "path": path}
    return Match(tuple(entry.model_copy(update=update) for entry in found), (finding,))


def _loose(need: Reference, folder: str, path: str, catalogue: Catalogue) -> Match:
    """A mirror knows files by the names they had when they were added, as a rule without folders."""
    base = path.rpartition("/")[2]
    fits = [file for file in catalogue.loose if file.folder is None or modern(file.folder) == modern(folder)]
    named = [file for file in fits if file.name == path] or [file for file in fits if file.name == base]
    if not named or not is_safe(folder, path):
        return Match()
    entries = tuple(_placed(file, folder, path) for file in {file.sha256: file for file in named}.values())
    if named[0].name == path:
        return Match(entries)
    finding = warning(
        BY_BASENAME,
        f"{path!r} is taken for the mirror's {base!r}, which was added without its folder",
        "check that it is that file; files of equal names in other folders are others",
        node=need.node,
        field=need.input,
    )
    return Match(entries, (finding,))


def _placed(file: LooseFile, folder: str, path: str) -> CatalogueEntry:
    return CatalogueEntry(
        folder=modern(folder), path=path, sha256=file.sha256, size=file.size, sources=file.sources
    )


def _tree(folder: str, path: str, catalogue: Catalogue) -> tuple[CatalogueEntry, ...]:
    """Every file of a directory; a single file of that name where there is no directory."""
    inside = path.strip("/") + "/"
    here = catalogue.in_folder(folder)
    found = tuple(e for e in here if e.path.startswith(inside) or e.path.startswith(f"models/{inside}"))
    return found or catalogue.candidates(folder, path)


def _whole_folder(need: Reference, folder: str, catalogue: Catalogue) -> Match:
    """Where only the folder is known, all that is listed of it: too much is better than what is missing."""
    entries = catalogue.in_folder(folder)
    if not entries:
        return Match()
    finding = warning(
        "implicit_folder",
        f"{need.class_type} loads models of the folder {folder} without naming them; all that is listed of "
        f"it is locked ({len(entries)} files)",
        "take out of the catalogue what it does not need",
        node=need.node,
        field=need.input,
    )
    return Match(entries, (finding,))


def _approx_vae(path: str, catalogue: Catalogue) -> tuple[CatalogueEntry, ...]:
    """`taesd` is an encoder and a decoder, of any suffix; single files have their full name."""
    exact = catalogue.candidates("vae_approx", path)
    if exact:
        return exact
    here = catalogue.in_folder("vae_approx")
    parts = [_one_name(e for e in here if e.path.rpartition(".")[0] == stem) for stem in approx_vae(path)]
    return tuple(entry for part in parts for entry in part) if all(parts) else ()


def _one_name(entries: Iterable[CatalogueEntry]) -> tuple[CatalogueEntry, ...]:
    found = tuple(entries)
    return tuple(entry for entry in found if entry.key == found[0].key)


def _by_stem(need: Reference, folder: str, path: str, catalogue: Catalogue) -> Match:
    """A LoRA tag may leave out suffix and folder; it must mean one file."""
    exact = _file(need, folder, path, catalogue)
    if exact.entries:
        return exact
    for is_base in (False, True):
        found = catalogue.called(folder, path, is_base=is_base)
        keys = dict.fromkeys(f"{e.key[0]}/{e.path}" for e in found)
        if len(keys) > 1:
            return Match((), (_ambiguous_name(need, path, list(keys)),))
        if found:
            return Match(found)
    return Match()


def _ambiguous_name(need: Reference, path: str, names: list[str]) -> Finding:
    return error(
        "ambiguous_name",
        f"{path!r} may be any of {', '.join(names[:5])}",
        "write folder and suffix in the tag",
        node=need.node,
        field=need.input,
    )


def wanted(needs: Iterable[Need]) -> Callable[[str, str], bool]:
    """Says of a folder and path whether any of these may mean that file, so that it has to be hashed.

    Names are compared loosely, so that none is lost.
    """
    listed = tuple(needs)
    parts = frozenset(_parts(need.path for need in listed if need.path))
    whole = {
        modern(need.folder)
        for need in listed
        if isinstance(need, Reference) and need.folder and not need.path
    }

    def is_wanted(folder: str, path: str) -> bool:
        if modern(folder) in whole:
            return True
        pieces = path.split("/")
        return any(_loosely(piece) in parts for piece in pieces) or _bare(pieces[-1]) in parts

    return is_wanted


def _parts(names: Iterable[str]) -> Iterator[str]:
    """The last piece of each name, with and without suffix; taesd's two files."""
    for name in names:
        last = name.rstrip("/").rpartition("/")[2]
        yield from (_loosely(last), _bare(last), _loosely(unquote(last)), _bare(unquote(last)))
        yield from map(_loosely, approx_vae(last))


def _loosely(name: str) -> str:
    return unicodedata.normalize("NFC", name).casefold().strip()


def _bare(name: str) -> str:
    text = _loosely(name)
    return text.rpartition(".")[0] or text
