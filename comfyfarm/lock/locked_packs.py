"""Node packs for a lock: those with a commit are pinned, the others are said to be missing."""

from collections.abc import Iterable

from comfyfarm.lock.lockfile import LockedPack, Missing
from comfyfarm.workflow.packs.pack import Pack, PackResolution
from comfyfarm.workflow.packs.urls import repo_key, repo_name


def locked_packs(
    resolutions: Iterable[PackResolution], imported: Iterable[LockedPack] = ()
) -> tuple[tuple[LockedPack, ...], tuple[Missing, ...]]:
    """The packs that workflows need, with what a snapshot has besides; and those without a commit.

    A workflow's own word wins over a snapshot's, which fills in commits that the workflow does not say.
    """
    found = {repo_key(pack.url): pack for pack in imported}
    missing: dict[str, Missing] = {}
    for row in (row for one in resolutions for row in one.needed):
        if row.url is not None and row.commit is not None:
            name = row.pack or repo_name(row.url)
            found[repo_key(row.url)] = LockedPack(name=name, url=row.url, commit=row.commit)
        elif row.url is None or repo_key(row.url) not in found:
            missing.setdefault(row.pack or row.class_type, _missing(row))
    return tuple(found.values()), tuple(missing.values())


def _missing(row: Pack) -> Missing:
    if row.url is not None:
        reason = f"no commit of {row.url} is known"
    elif row.pack is not None:
        reason = "its repository is not known"
    else:
        reason = f"nothing says which node pack has the class {row.class_type[:80]!r}"
    return Missing(kind="pack", name=row.pack or row.class_type[:80], reason=reason)
