"""How a missing name is told: what it is, who wants it, and what is written much alike."""

import difflib
from collections.abc import Sequence

from comfyfarm.addresses import mask
from comfyfarm.lock.catalogue import Catalogue
from comfyfarm.lock.match import Need
from comfyfarm.workflow.references.find import Kind, Unclassified

_NEAR = 3
_MOST_COMPARED = 1000
_BEGINNING = 3  # letters


def title_of(need: Need) -> str:
    """What is wanted, for people."""
    if isinstance(need, Unclassified):
        return f"(folder not known)/{need.path}"
    name = mask(need.path or need.name or "a model that the class loads by itself")
    return f"{need.folder}/{name}" if need.folder is not None else f"{name} ({need.kind})"


def missing_line(title: str, who: Sequence[Need], catalogue: Catalogue) -> str:
    """One line: the name, the nodes that want it, near names of the catalogue."""
    places = dict.fromkeys(f"node {n.node} {n.class_type}.{n.input}" for n in who)
    return f"{title} ({', '.join(places)}){_hint(who[0], catalogue)}"


def _hint(need: Need, catalogue: Catalogue) -> str:
    if not isinstance(need, Unclassified) and need.kind is Kind.HF_REPO:
        return "; list it with its revision under `repos` of a catalogue"
    near = near_names(title_of(need), need.path or "", catalogue)
    return f"; near: {', '.join(near)}" if near else ""


def near_names(title: str, path: str, catalogue: Catalogue) -> list[str]:
    """The same file elsewhere first, then names that are written much alike; three at most.

    Of a large catalogue only names that begin alike are compared: each comparison costs time.
    """
    base = _base(path)
    same = [name for name in catalogue.names if _base(name) == base]
    pool = catalogue.names
    if len(pool) > _MOST_COMPARED:
        pool = tuple(name for name in pool if _base(name)[:_BEGINNING] == base[:_BEGINNING])
    alike = difflib.get_close_matches(title, pool[:_MOST_COMPARED], n=_NEAR)
    return list(dict.fromkeys([*same, *alike]))[:_NEAR]


def _base(name: str) -> str:
    return name.rpartition("/")[2].casefold()
