"""What is known of node packs from outside a workflow: class maps, lists of packs, a host's own packs."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType

from comfyfarm.workflow.packs.name_pattern import LONGEST_CLASS
from comfyfarm.workflow.packs.urls import repo_key, repo_name

CORE_REPOS = frozenset({"github.com/comfyanonymous/comfyui", "github.com/comfy-org/comfyui"})
"""Keys of ComfyUI's own repository, which class maps list among the packs."""

_Urls = Mapping[str, tuple[str, ...]]
_LEAST, _LONGEST = 5, 60


def _none() -> _Urls:
    return MappingProxyType({})


@dataclass(frozen=True, slots=True)
class InstalledPack:
    """A node pack that a host has, or that lies in a folder of checkouts."""

    folder: str
    """Name of its folder below `custom_nodes`."""
    url: str | None = None
    commit: str | None = None
    """40 hex digits."""
    id: str | None = None
    """Its id in the registry."""
    version: str | None = None
    """The release that is installed."""
    releases: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Commit of each release, where a checkout tells."""
    history: tuple[str, ...] = ()
    """Commits, newest first, where a checkout tells."""

    @property
    def names(self) -> frozenset[str]:
        """All that it is called by, in lower case."""
        url_name = repo_name(self.url) if self.url is not None else None
        return frozenset(name.lower() for name in (self.folder, self.id, url_name) if name)


@dataclass(frozen=True)
class PackIndex:
    """Where classes and ids of packs lead to. Every address is in the form of `repo_url`."""

    classes: _Urls = field(default_factory=_none)
    """Repositories that claim a class, by its exact name."""
    preempted: _Urls = field(default_factory=_none)
    """Repositories that a class belongs to whoever else claims it."""
    patterns: tuple[tuple[re.Pattern[str], str], ...] = ()
    """Names of classes that a repository claims by pattern, for classes that nobody names."""
    ids: _Urls = field(default_factory=_none)
    """Repositories by registry id, in lower case."""
    repos: tuple[str, ...] = ()
    """All repositories of the lists."""
    installed: tuple[InstalledPack, ...] = ()

    @property
    def has_classes(self) -> bool:
        """Whether there is any class map."""
        return bool(self.classes or self.patterns)

    def claimants(self, class_type: str) -> tuple[str, ...]:
        """The repositories that have a class, as far as the class map says."""
        exact = self.preempted.get(class_type) or self.classes.get(class_type)
        if exact:
            return exact
        name = class_type[:LONGEST_CLASS]  # a pattern may be slow on a long one
        return unique_repos(url for pattern, url in self.patterns if pattern.search(name))

    def named(self, name: str) -> tuple[str, ...]:
        """The repositories that an id of the registry can mean: listed under it, else called like it."""
        name = name.lower()
        hosted = [pack.url for pack in self.find_installed(name) if pack.url is not None]
        return self.ids.get(name) or unique_repos(hosted) or self._by_name.get(name, ())

    def find_installed(self, name: str) -> tuple[InstalledPack, ...]:
        """The packs of the host that are called so: by folder, id or repository."""
        return self._installed_by_name.get(name.lower(), ())

    def installed_at(self, url: str) -> tuple[InstalledPack, ...]:
        """The packs of the host that come from a repository."""
        return self._installed_by_key.get(repo_key(url), ())

    def spelled(self, url: str) -> str:
        """The address as the lists write it: a file may have other capitals."""
        return self._by_key.get(repo_key(url), url)

    def alike(self, class_type: str) -> str | None:
        """A repository whose name begins the class's: `ComfyUI-nunchaku` for `NunchakuTextEncoder`."""
        name = letters(class_type[:_LONGEST])
        found = (self._by_letters.get(name[:length]) for length in range(len(name), _LEAST - 1, -1))
        return next((url for url in found if url is not None), None)

    @cached_property
    def _by_letters(self) -> dict[str, str]:
        names = ((bare_name(url), url) for url in self.repos)
        return {name: url for name, url in names if len(name) >= _LEAST}

    @cached_property
    def _by_key(self) -> dict[str, str]:
        return {repo_key(url): url for url in self.repos}

    @cached_property
    def _by_name(self) -> dict[str, tuple[str, ...]]:
        return grouped((repo_name(url).lower(), url) for url in self.repos)

    @cached_property
    def _installed_by_name(self) -> dict[str, tuple[InstalledPack, ...]]:
        found: dict[str, tuple[InstalledPack, ...]] = {}
        for pack in self.installed:
            for name in pack.names:
                found[name] = (*found.get(name, ()), pack)
        return found

    @cached_property
    def _installed_by_key(self) -> dict[str, tuple[InstalledPack, ...]]:
        found: dict[str, tuple[InstalledPack, ...]] = {}
        for pack in self.installed:
            if pack.url is not None:
                found[repo_key(pack.url)] = (*found.get(repo_key(pack.url), ()), pack)
        return found


def merged(indices: Iterable[PackIndex]) -> PackIndex:
    """Several indices as one."""
    several = tuple(indices)
    if len(several) == 1:
        return several[0]
    return PackIndex(
        classes=_joined(index.classes for index in several),
        preempted=_joined(index.preempted for index in several),
        patterns=tuple(pair for index in several for pair in index.patterns),
        ids=_joined(index.ids for index in several),
        repos=unique_repos(url for index in several for url in index.repos),
        installed=tuple(pack for index in several for pack in index.installed),
    )


def grouped(pairs: Iterable[tuple[str, str]]) -> dict[str, tuple[str, ...]]:
    """Addresses by key, each repository once."""
    found: dict[str, dict[str, str]] = {}
    for key, url in pairs:
        found.setdefault(key, {}).setdefault(repo_key(url), url)
    return {key: tuple(urls.values()) for key, urls in found.items()}


def unique_repos(urls: Iterable[str]) -> tuple[str, ...]:
    """Each repository once, whatever its spelling."""
    found: dict[str, str] = {}
    for url in urls:
        found.setdefault(repo_key(url), url)
    return tuple(found.values())


def bare_name(url: str) -> str:
    """The name of a repository without what most names have in common."""
    return letters(repo_name(url)).replace("comfyui", "").removesuffix("nodes")


def letters(text: str) -> str:
    """Letters and digits alone, in lower case."""
    return "".join(sign for sign in text.lower() if sign.isalnum())


def _joined(maps: Iterable[_Urls]) -> _Urls:
    return MappingProxyType(
        grouped((key, url) for each in maps for key, urls in each.items() for url in urls)
    )
