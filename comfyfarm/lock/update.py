"""A lock's names looked up anew: what the catalogue says today, with everything else kept as it is."""

from collections.abc import Iterable, Sequence

from comfyfarm.errors import NamesMissing
from comfyfarm.lock.catalogue import Catalogue, CatalogueEntry
from comfyfarm.lock.lockfile import Lock, LockedModel, LockedRepo
from comfyfarm.lock.near import near_names
from comfyfarm.lock.resolve import Unresolved
from comfyfarm.workflow.findings import Finding, error


def update_lock(lock: Lock, catalogue: Catalogue, *, names: Sequence[str] = ()) -> Lock:
    """The lock with the content that the catalogue has under its names now.

    A name that stands for several contents keeps the one that is locked, when it is among them.

    Args:
        lock: as it is; fields that are not known here are kept.
        catalogue: what is there today.
        names: `folder/path`, a path or its last part, or the id of a repo; none means all.

    Raises:
        Unresolved: names that the lock or the catalogue has not, or that stand for several contents.
    """
    _check_names(lock, names)
    absent: list[str] = []
    wrong: list[Finding] = []
    models = tuple(
        _model(model, catalogue, absent, wrong) if _is_named(model, names) else model for model in lock.models
    )
    repos = tuple(
        _repo(repo, catalogue, absent, wrong) if not names or repo.id in names else repo
        for repo in lock.repos
    )
    if absent or wrong:
        raise Unresolved("the catalogue does not have these names of the lock:", absent, wrong)
    return lock.model_copy(update={"models": models, "repos": repos})


def _check_names(lock: Lock, names: Iterable[str]) -> None:
    known = {name for model in lock.models for name in _names(model)} | {repo.id for repo in lock.repos}
    strange = [name for name in names if name not in known]
    if strange:
        raise NamesMissing("the lock does not have these names:", strange)


def _names(model: LockedModel) -> tuple[str, str, str]:
    return (model.title, model.path, model.path.rpartition("/")[2])


def _is_named(model: LockedModel, names: Sequence[str]) -> bool:
    return not names or any(name in names for name in _names(model))


def _model(model: LockedModel, catalogue: Catalogue, absent: list[str], wrong: list[Finding]) -> LockedModel:
    choices = {entry.sha256: entry for entry in _candidates(model, catalogue)}
    title = model.title
    if not choices:
        near = near_names(title, model.path, catalogue)
        absent.append(title + (f"; near: {', '.join(near)}" if near else ""))
        return model
    if len(choices) > 1 and model.sha256 not in choices:
        digests = ", ".join(f"{one[:12]}…" for one in choices)
        message = f"{title} stands for several contents: {digests}"
        wrong.append(error("ambiguous_hash", message, "keep the one that is meant in the catalogue"))
        return model
    entry = choices.get(model.sha256) or next(iter(choices.values()))
    return model.model_copy(update=_changes(model, entry))


def _candidates(model: LockedModel, catalogue: Catalogue) -> tuple[CatalogueEntry, ...]:
    return catalogue.candidates(model.folder, model.path) or catalogue.alike(model.folder, model.path)


def _changes(model: LockedModel, entry: CatalogueEntry) -> dict[str, object]:
    """The same content may also lie where it lay before; of other content the header is another, too."""
    if entry.sha256 != model.sha256:
        return {
            "sha256": entry.sha256, "size": entry.size, "sources": entry.sources, "header": entry.header,
        }  # fmt: skip
    header = model.header if model.header is not None else entry.header
    return {"sources": tuple(dict.fromkeys([*entry.sources, *model.sources])), "header": header}


def _repo(repo: LockedRepo, catalogue: Catalogue, absent: list[str], wrong: list[Finding]) -> LockedRepo:
    revisions = dict.fromkeys(one.revision for one in catalogue.repos if one.id == repo.id)
    if not revisions:
        absent.append(f"{repo.id} (a hub repo)")
    elif len(revisions) > 1 and repo.revision not in revisions:
        message = f"{repo.id} has several revisions: {', '.join(revisions)}"
        wrong.append(error("ambiguous_revision", message, "keep the one that is meant in the catalogue"))
    elif repo.revision not in revisions:
        return repo.model_copy(update={"revision": next(iter(revisions))})
    return repo
