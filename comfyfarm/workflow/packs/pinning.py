"""From a pack and the versions that its nodes carry to a commit, or to what is missing for one."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from comfyfarm.workflow.findings import Finding, warning
from comfyfarm.workflow.packs.index import InstalledPack, PackIndex
from comfyfarm.workflow.packs.placing import Place
from comfyfarm.workflow.packs.urls import masked_id
from comfyfarm.workflow.packs.uses import Use
from comfyfarm.workflow.packs.versions import VersionKind, by_prefix, classify, newest, plain

_MOST_SHOWN = 8


@dataclass(frozen=True, slots=True)
class Pinned:
    """A pack at a commit; None when what is at hand does not give one."""

    commit: str | None
    findings: tuple[Finding, ...] = ()


def pin(members: Sequence[tuple[Use, Place]], index: PackIndex) -> Pinned:
    """The commit of one pack, from all the classes that a file has of it."""
    use, place = members[0]
    vers = [hint.ver for each, at in members if at.is_of_hint for hint in each.hints if hint.ver]
    installed = _installed(place, index)
    history = next((pack.history for pack in installed if pack.history), ())
    chosen = next((each.commit for _, each in members if each.commit is not None), None)
    taken = newest(vers, history=history)
    commit = chosen or _commit(taken, installed)
    findings = [*_versions(members, vers, taken, chosen)]
    if commit is None:
        findings.append(_not_pinned(use, place, taken))
    return Pinned(commit, tuple(findings))


def _installed(place: Place, index: PackIndex) -> tuple[InstalledPack, ...]:
    if place.url is not None:
        found = index.installed_at(place.url)
        if found or place.id is None:
            return found
    return tuple(
        pack for pack in index.find_installed(place.id or "") if pack.url is None or place.url is None
    )


def _commit(ver: str | None, installed: Sequence[InstalledPack]) -> str | None:
    kind = classify(ver) if ver is not None else VersionKind.UNKNOWN
    if ver is None or kind in {VersionKind.NIGHTLY, VersionKind.UNKNOWN}:
        return next((pack.commit for pack in installed if pack.commit is not None), None)
    if kind is VersionKind.COMMIT:
        return ver
    if kind is VersionKind.SHORT:
        return by_prefix(ver, (commit for pack in installed for commit in _commits(pack)))
    return next(_released(ver, installed), None)


def _commits(pack: InstalledPack) -> Iterator[str]:
    yield from pack.history
    yield from pack.releases.values()
    if pack.commit is not None:
        yield pack.commit


def _released(ver: str, installed: Sequence[InstalledPack]) -> Iterator[str]:
    """The commit of a release: as a checkout tells, else the installed one when it is that release."""
    for pack in installed:
        if ver in pack.releases:
            yield pack.releases[ver]
    for pack in installed:
        if pack.commit is not None and pack.version is not None and plain(pack.version) == ver:
            yield pack.commit


def _versions(
    members: Sequence[tuple[Use, Place]], vers: Sequence[str], taken: str | None, chosen: str | None
) -> Iterator[Finding]:
    distinct = list(dict.fromkeys(plain(ver) for ver in vers))
    if len(distinct) < 2:
        return
    use, place = members[0]
    named = ", ".join(_short(ver) for ver in distinct[:_MOST_SHOWN])
    more = f" and {len(distinct) - _MOST_SHOWN} more" if len(distinct) > _MOST_SHOWN else ""
    kept = f"commit {chosen[:12]} is taken, which was chosen" if chosen else f"{_short(taken or '')} is taken"
    yield warning(
        "pack_versions",
        f"the nodes of {place.name} were saved with {len(distinct)} versions ({named}{more}); {kept}",
        "save the workflow again with one version installed, or pin one in comfyfarm.toml",
        node=use.node,
        field="ver",
    )


def _not_pinned(use: Use, place: Place, taken: str | None) -> Finding:
    return warning(
        "pack_not_pinned",
        f"no commit of {place.name} is known: {_why(taken)}",
        "give a folder of checkouts (--custom-nodes DIR) that has the pack, or name the commit in "
        f'comfyfarm.toml: [packs] {use.toml_key} = "{place.url or "URL"}@<commit>"',
        node=use.node,
        field="ver",
    )


def _why(taken: str | None) -> str:
    if taken is None:
        return "the file does not say which version it was saved with"
    kind = classify(taken)
    if kind is VersionKind.RELEASE:
        return f"the file says release {_short(taken)}, and no checkout at hand has it"
    if kind is VersionKind.SHORT:
        return f"the file says {_short(taken)}, which only begins a commit"
    return f"the file says {_short(taken)!r}, which is no version"


def _short(ver: str) -> str:
    return ver[:12] if classify(ver) is VersionKind.COMMIT else masked_id(ver)[:40]
