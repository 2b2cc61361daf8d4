"""Every reference looked up in a catalogue: what is pinned, what is missing, what is ambiguous."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from comfyfarm.errors import NamesMissing
from comfyfarm.lock.catalogue import Catalogue, CatalogueEntry
from comfyfarm.lock.hints import Hint, SizeOf, entry_of, hints_for
from comfyfarm.lock.lockfile import Lock, LockedModel, LockedRepo, Missing
from comfyfarm.lock.match import BY_BASENAME, Match, Need, match
from comfyfarm.lock.near import missing_line, title_of
from comfyfarm.workflow.findings import Finding, error, has_errors, warning
from comfyfarm.workflow.references.find import Kind, Unclassified

_Key = tuple[str, str]
_NEAR_FOR = 20  # names; near ones of more are read by nobody, and each costs a look at the whole catalogue


class Unresolved(NamesMissing):
    """Names that nothing pins, and names that stand for more than one thing, all of them at once."""

    def __init__(self, message: str, names: Sequence[str], findings: Sequence[Finding] = ()) -> None:
        super().__init__(message, names)
        self.args = (message, tuple(names), tuple(findings))
        self.findings = tuple(findings)
        """The ambiguous ones, as errors with a code."""

    def __str__(self) -> str:
        lines = [super().__str__()] if self.names else []
        return "\n".join([*lines, *(f"{finding.code}: {finding}" for finding in self.findings)])


@dataclass
class Resolution:
    """What was found for the references of some workflows, and what was not."""

    models: dict[_Key, LockedModel] = field(default_factory=dict)
    repos: dict[str, LockedRepo] = field(default_factory=dict)
    missing: dict[str, Missing] = field(default_factory=dict)
    """Needed and without a name to pin: no error."""
    unnamed: dict[str, list[Need]] = field(default_factory=dict)
    """Names that the catalogue has not: errors."""
    findings: dict[Finding, None] = field(default_factory=dict)

    def check(self, message: str, catalogue: Catalogue) -> None:
        """Raise `Unresolved` when anything is missing or ambiguous."""
        names = [
            missing_line(title, who, catalogue if place < _NEAR_FOR else Catalogue())
            for place, (title, who) in enumerate(self.unnamed.items())
        ]
        wrong = [finding for finding in self.findings if has_errors([finding])]
        if names or wrong:
            raise Unresolved(message, names, wrong)

    @property
    def warnings(self) -> tuple[Finding, ...]:
        """What people should see and what stops nothing."""
        return tuple(finding for finding in self.findings if not has_errors([finding]))


def resolve(
    needs: Iterable[Need],
    catalogue: Catalogue,
    *,
    hints: Sequence[Hint] = (),
    pinned: Lock | None = None,
    size_of: SizeOf | None = None,
) -> Resolution:
    """Find everything that can be found; what cannot is in the result, and no exception."""
    found = Resolution()
    pins = {model.modern_key: model for model in pinned.models} if pinned else {}
    by_name = _by_base_name(hints)
    guessed: dict[str, str] = {}
    for need in needs:
        if not isinstance(need, Unclassified) and need.kind is Kind.HF_REPO:
            _take_repo(need.path or need.name or "", need, catalogue, found)
            continue
        mine = hints_for(need, by_name.get(_base_name(need.path or ""), ()))
        got = match(need, catalogue)
        found.findings.update(dict.fromkeys(got.findings))
        if not got.entries and not got.findings:
            made = entry_of(need, mine, size_of)
            got = Match((made,)) if made is not None else got
        if any(one.code == BY_BASENAME for one in got.findings):
            _check_guess(need, got, guessed, found)
        if got.entries:
            _take(need, got.entries, mine, pins, found)
        elif not got.findings:
            _miss(need, found)
    return found


def _check_guess(need: Need, got: Match, guessed: dict[str, str], found: Resolution) -> None:
    """One file under a bare name cannot be two files of different folders."""
    other = guessed.setdefault(got.entries[0].sha256, need.path or "")
    if other != need.path:
        message = f"{need.path!r} and {other!r} would both be the mirror's {_base_name(other)!r}"
        remedy = "say in a catalogue file which is which"
        found.findings[error("ambiguous_name", message, remedy, node=need.node, field=need.input)] = None


def _by_base_name(hints: Iterable[Hint]) -> dict[str, list[Hint]]:
    found: dict[str, list[Hint]] = {}
    for hint in hints:
        found.setdefault(_base_name(hint.name), []).append(hint)
    return found


def _base_name(path: str) -> str:
    return path.rpartition("/")[2]


def _take(
    need: Need,
    entries: Sequence[CatalogueEntry],
    hints: Sequence[Hint],
    pins: Mapping[_Key, LockedModel],
    found: Resolution,
) -> None:
    keys = dict.fromkeys(entry.key for entry in entries)
    for key in keys:
        choices = {entry.sha256: entry for entry in entries if entry.key == key}
        # A hint speaks of one file; of a directory or a pair it cannot be said which.
        _take_one(need, choices, hints if len(keys) == 1 else (), pins.get(key), found)


def _take_one(
    need: Need,
    choices: Mapping[str, CatalogueEntry],
    hints: Sequence[Hint],
    pinned: LockedModel | None,
    found: Resolution,
) -> None:
    said = dict.fromkeys(hint.sha256 for hint in hints if hint.sha256 is not None)
    digests = list(dict.fromkeys([*choices, *said]))
    if pinned is not None and pinned.sha256 in digests:
        chosen = choices.get(pinned.sha256) or CatalogueEntry.model_validate(pinned.model_dump())
    elif len(digests) > 1:
        found.findings[_ambiguous(need, next(iter(choices.values())).key, digests)] = None
        return
    else:
        chosen = choices[digests[0]]
    _lock(found, chosen, [hint.url for hint in hints if hint.url and hint.sha256 in {None, chosen.sha256}])


def _lock(found: Resolution, entry: CatalogueEntry, more_sources: Iterable[str]) -> None:
    """Under the folder's key of today, so that one name has one place in every lock."""
    known = found.models.get(entry.key)
    sources = (*(known.sources if known is not None else ()), *entry.sources, *more_sources)
    found.models[entry.key] = LockedModel(
        folder=entry.key[0],
        path=entry.path,
        sha256=entry.sha256,
        size=entry.size,
        sources=tuple(dict.fromkeys(source for source in sources if source)),
        header=entry.header,
    )


def _ambiguous(need: Need, key: _Key, digests: Iterable[str]) -> Finding:
    return error(
        "ambiguous_hash",
        f"{key[0]}/{key[1]} stands for several contents: {', '.join(f'{one[:12]}…' for one in digests)}",
        "keep the one that is meant in the catalogue, or in the lock that is written over",
        node=need.node,
        field=need.input,
    )


def _take_repo(name: str, need: Need, catalogue: Catalogue, found: Resolution) -> None:
    revisions = {repo.revision: repo for repo in catalogue.repos if repo.id == name}
    if not revisions:
        found.unnamed.setdefault(title_of(need), []).append(need)
    elif len(revisions) > 1:
        message = f"{name} has several revisions: {', '.join(sorted(revisions))}"
        remedy = "keep the one that is meant among the catalogue's repos"
        found.findings[error("ambiguous_revision", message, remedy, node=need.node, field=need.input)] = None
    else:
        found.repos[name] = next(iter(revisions.values()))


def _miss(need: Need, found: Resolution) -> None:
    if isinstance(need, Unclassified) or need.kind is not Kind.IMPLICIT:
        found.unnamed.setdefault(title_of(need), []).append(need)
        return
    name = f"{need.folder}/{need.path}" if need.folder and need.path else need.class_type
    reason = f"{need.class_type} loads it by itself; the workflow does not name it"
    found.missing.setdefault(name, Missing(kind="model", name=name, reason=reason))
    message = f"{need.class_type} loads models by itself that the workflow does not name"
    remedy = "have them on the hosts, or list their directory in the catalogue"
    found.findings[warning("not_pinned", message, remedy, node=need.node, field=need.input)] = None
