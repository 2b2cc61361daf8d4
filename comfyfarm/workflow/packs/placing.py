"""From classes to repositories: a choice, what nodes say, the host's own packs, the class map, siblings."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from comfyfarm.workflow.editor_nodes import editor_pack
from comfyfarm.workflow.file_node import PackHint
from comfyfarm.workflow.packs.index import InstalledPack, PackIndex, bare_name, letters, unique_repos
from comfyfarm.workflow.packs.urls import from_aux_id, repo_key, repo_name, repo_url, split_commit
from comfyfarm.workflow.packs.uses import Use
from comfyfarm.workflow.schema import CUSTOM, NodeSchema

_ID = re.compile(r"(?!.*@.*/)[\w.][\w. +@/-]{0,99}")
"""Not `token@host/name`, which is an address without its scheme."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a class comes from, or why that is not known."""

    source: str | None = None
    url: str | None = None
    id: str | None = None
    """Its id in the registry, in lower case; for a pack of a host without an address, its folder."""
    commit: str | None = None
    """Only where a choice names it."""
    is_of_hint: bool = True
    """Whether the versions that the nodes carry are this pack's."""
    candidates: tuple[str, ...] = ()
    """Repositories that it may come from, the likeliest first, when nothing decides between them."""

    @property
    def key(self) -> str | None:
        """What all classes of one pack have in common."""
        if self.url is not None:
            return repo_key(self.url)
        return None if self.id is None else f"id:{self.id}"

    @property
    def name(self) -> str | None:
        """The pack's name."""
        return repo_name(self.url) if self.url is not None else self.id


def place_all(
    uses: Sequence[Use], schema: NodeSchema, index: PackIndex, choices: Mapping[str, str]
) -> dict[str, Place]:
    """The place of each class. One that is placed helps to place the others of the same file."""
    places = {use.class_type: _alone(use, schema, index, choices) for use in uses}
    _share_ids(uses, places)
    _ids_by_map(uses, places, index)
    votes = Counter(place.key for place in places.values() if place.url is not None)
    for name, place in places.items():
        if place.source is None and len(place.candidates) > 1:
            places[name] = _by_siblings(name, place.candidates, votes)
    return places


def folder_of(class_type: str, schema: NodeSchema) -> str | None:
    """The folder below `custom_nodes` that a live server has the class from."""
    module = schema.module(class_type)
    return module.removeprefix(CUSTOM) if module.startswith(CUSTOM) else None


def hint_id(hint: PackHint) -> str | None:
    """The registry id that a node carries, as it is compared; None for none, or what can be none."""
    text = (hint.cnr_id or "").strip().lower()
    return text if _ID.fullmatch(text) else None


def _alone(use: Use, schema: NodeSchema, index: PackIndex, choices: Mapping[str, str]) -> Place:
    """What can be said of a class without the other classes."""
    hinted = _hinted(use, index)
    chosen = _chosen(choices.get(use.class_type))
    if chosen is not None:
        return replace(chosen, is_of_hint=hinted is not None and _agree(hinted, chosen))
    if hinted is not None and (hinted.url is not None or hinted.candidates):
        return hinted
    return _hosted(use, schema, index) or hinted or _mapped(use, index)


def _chosen(text: str | None) -> Place | None:
    if text is None:
        return None
    address, commit = split_commit(text)
    url = repo_url(address)
    return None if url is None else Place("choice", url, commit=commit)


def _agree(hinted: Place, chosen: Place) -> bool:
    """Whether a choice is what the nodes say, or says where that lies."""
    return (not hinted.candidates and hinted.url is None) or hinted.key == chosen.key


def _hinted(use: Use, index: PackIndex) -> Place | None:
    """What the nodes of the class say; None when they say nothing that has a meaning."""
    found: dict[str, Place] = {}
    for hint in dict.fromkeys(use.hints):
        place = _of_hint(hint, use.class_type, index)
        if place is not None:
            found.setdefault(place.key or "", place)
    places = list(found.values())
    addressed = [place for place in places if place.url is not None]
    if len(addressed) > 1:  # copies from two packs that have a class of one name
        return Place(candidates=unique_repos(place.url for place in addressed if place.url is not None))
    return next(iter(addressed or places), None)


def _of_hint(hint: PackHint, class_type: str, index: PackIndex) -> Place | None:
    pack_id = hint_id(hint)
    urls = _narrowed(index.named(pack_id), class_type, index) if pack_id is not None else ()
    if len(urls) == 1:
        return Place("cnr_id", urls[0], pack_id)
    aux_url = from_aux_id(hint.aux_id) if hint.aux_id is not None else None
    if aux_url is not None:
        return Place("aux_id", index.spelled(aux_url), pack_id)
    if len(urls) > 1:
        return Place(id=pack_id, candidates=urls)
    return None if pack_id is None else Place("cnr_id", id=pack_id)


def _narrowed(urls: tuple[str, ...], class_type: str, index: PackIndex) -> tuple[str, ...]:
    """Of several repositories of one name those that have the class, if that leaves any."""
    if len(urls) < 2:
        return urls
    keys = {repo_key(url) for url in index.claimants(class_type)}
    return tuple(url for url in urls if repo_key(url) in keys) or urls


def _hosted(use: Use, schema: NodeSchema, index: PackIndex) -> Place | None:
    folder = folder_of(use.class_type, schema)
    if folder is None:
        return None
    installed = _exact(index.find_installed(folder), folder)
    for pack in installed:
        if pack.url is not None:
            return Place("host", pack.url, (pack.id or "").lower() or None)
    urls = _narrowed(index.named(folder), use.class_type, index)
    if len(urls) == 1:
        return Place("host", urls[0])
    return Place("host", id=folder.lower())


def _exact(packs: Iterable[InstalledPack], folder: str) -> Sequence[InstalledPack]:
    """Of packs that are called alike, the one that lies in the folder."""
    return sorted(packs, key=lambda pack: pack.folder.lower() != folder.lower())


def _mapped(use: Use, index: PackIndex) -> Place:
    urls = index.claimants(use.class_type)
    if len(urls) == 1:
        return Place("node_map", urls[0])
    drawn_by = editor_pack(use.class_type)
    if not urls and drawn_by is not None:
        return Place("known", drawn_by)
    return Place(candidates=urls)


def _share_ids(uses: Sequence[Use], places: dict[str, Place]) -> None:
    """Give classes whose id leads nowhere the address that a choice or another class has for that id."""
    known: dict[str, str] = {}
    for use in uses:
        place = places[use.class_type]
        if place.url is not None:
            known.update({pack_id: place.url for pack_id in _ids(use) if pack_id not in known})
    for name, place in places.items():
        if place.url is None and place.id in known:
            places[name] = Place("cnr_id", known[place.id], place.id)


def _ids_by_map(uses: Sequence[Use], places: dict[str, Place], index: PackIndex) -> None:
    """Find the address of an id that no list has: the one repository that has the most of its classes."""
    groups: dict[str, list[str]] = {}
    for use in uses:
        place = places[use.class_type]
        if place.source in {"cnr_id", "host"} and place.url is None and place.id is not None:
            groups.setdefault(place.id, []).append(use.class_type)
    for pack_id, names in groups.items():
        votes = Counter(url for name in names for url in index.claimants(name))
        best = _leaders(votes)
        if len(best) == 1:
            for name in names:
                places[name] = Place("node_map", best[0], pack_id)


def _by_siblings(class_type: str, candidates: tuple[str, ...], votes: Mapping[str | None, int]) -> Place:
    counts = Counter({url: votes.get(repo_key(url), 0) for url in candidates})
    best = _leaders(counts)
    if len(best) == 1:
        return Place("siblings", best[0])
    # A pack that is called like the class is the likeliest, and still not sure to be the one.
    ordered = sorted(candidates, key=lambda url: (-counts[url], bare_name(url) not in letters(class_type)))
    return Place(candidates=tuple(ordered))


def _leaders(votes: Counter[str]) -> list[str]:
    """All that have the most votes, of which there has to be one."""
    most = max(votes.values(), default=0)
    return [url for url, count in votes.items() if count == most > 0]


def _ids(use: Use) -> Iterator[str]:
    for hint in use.hints:
        pack_id = hint_id(hint)
        if pack_id is not None:
            yield pack_id
