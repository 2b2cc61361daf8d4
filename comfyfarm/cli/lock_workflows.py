"""The workflows of a lock, read once: what they name, what their files say of it, the packs they need."""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from comfyfarm.addresses import mask
from comfyfarm.cli.job_file_hint import with_job_file_hint
from comfyfarm.cli.projects import Projects
from comfyfarm.cli.workflow_files import read_file
from comfyfarm.errors import NamesMissing
from comfyfarm.lock.hints import Hint, hints_of
from comfyfarm.lock.lockfile import Lock, LockedModel
from comfyfarm.lock.online_packs import resolve_online
from comfyfarm.lock.pins import pin
from comfyfarm.workflow.findings import Finding, Refused, has_errors
from comfyfarm.workflow.packs.index import PackIndex
from comfyfarm.workflow.packs.pack import PackResolution
from comfyfarm.workflow.packs.policy import Policy, pickle_findings, policy_findings
from comfyfarm.workflow.reading.reader import Reading, read
from comfyfarm.workflow.references.find import References, find_references
from comfyfarm.workflow.schema import NodeSchema


class Wanted(NamedTuple):
    """What workflows want of a lock."""

    names: tuple[str, ...]
    """Of the workflows, as all that is said of each of them is in their order."""
    references: tuple[References, ...]
    hints: tuple[Hint, ...]
    packs: tuple[PackResolution, ...]
    findings: tuple[Finding, ...]
    """Of packs and policies."""


def read_workflows(
    names: Sequence[str],
    schema: NodeSchema,
    index: PackIndex,
    *,
    projects: Projects,
    registry: str | None = None,
    ask_remotes: bool = False,
) -> Wanted:
    """Read them all.

    `projects`: of these files, in their order. `registry`, `ask_remotes`: who is asked for what packs lack,
    as `resolve_online` says.

    Raises:
        InputError: one of them cannot be read, or is wrong.
        TryLater: the registry did not answer.
    """
    references: list[References] = []
    hints: list[Hint] = []
    resolutions: list[PackResolution] = []
    findings: dict[Finding, None] = {}
    for name, policy in zip(names, projects.policies, strict=True):
        reading = _read(name, schema)
        references.append(find_references(reading.nodes, schema))
        hints.extend(hints_of(reading.nodes))
        resolved = resolve_online(
            reading.nodes,
            schema,
            index=index,
            choices=projects.choices,
            registry=registry,
            ask_remotes=ask_remotes,
            run={node.class_type for node in reading.workflow.nodes},
        )
        resolutions.append(resolved)
        findings.update(dict.fromkeys(resolved.findings))
        refused = policy_findings(reading.nodes, resolved, policy=policy)
        findings.update(dict.fromkeys(_of(refused, name) if len(names) > 1 else refused))
    return Wanted(tuple(names), tuple(references), tuple(hints), tuple(resolutions), tuple(findings))


def _read(name: str, schema: NodeSchema) -> Reading:
    data = read_file(name)
    try:
        reading = read(data, name=name, schema=schema)
    except Refused as exc:
        raise Refused(name, with_job_file_hint(exc.findings, data)) from exc
    if has_errors(reading.findings):
        raise Refused(name, with_job_file_hint(reading.findings, data))
    return reading


def pickles(lock: Lock, workflows: Wanted, projects: Projects) -> tuple[Finding, ...]:
    """Pickled files of a lock that a policy does not allow: of each workflow those that it needs."""
    if len(workflows.names) == 1:
        return tuple(_refused(lock.models, projects.policies[0]))
    found: dict[Finding, None] = {}
    needed: set[str] = set()
    for name, policy, references in zip(
        workflows.names, projects.policies, workflows.references, strict=True
    ):
        models = _pinned(lock, references)
        found.update(dict.fromkeys(_of(_refused(models, policy), name)))
        needed.update(model.title for model in models)
    if len(set(projects.policies)) == 1:  # which then holds for what none of them needs, too
        rest = [model for model in lock.models if model.title not in needed]
        found.update(dict.fromkeys(_refused(rest, projects.policies[0])))
    return tuple(found)


def _refused(models: Iterable[LockedModel], policy: Policy) -> Sequence[Finding]:
    return pickle_findings(((model.title, model.sha256) for model in models), policy=policy)


def _of(findings: Iterable[Finding], name: str) -> Iterator[Finding]:
    """The same, saying of which of several workflows."""
    for finding in findings:
        yield finding.model_copy(update={"message": f"{mask(name)}: {finding.message}"})


def _pinned(lock: Lock, references: References) -> tuple[LockedModel, ...]:
    try:
        return pin(references, lock)
    except NamesMissing:  # which others say: until it is covered all of the lock may be meant
        return lock.models
