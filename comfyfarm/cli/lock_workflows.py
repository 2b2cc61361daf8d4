"""The workflows of a lock, read once: what they name, what their files say of it, the packs they need."""

from collections.abc import Sequence
from typing import NamedTuple

from comfyfarm.cli.pack_options import KnownPacks
from comfyfarm.cli.workflow_files import read_file
from comfyfarm.lock.hints import Hint, hints_of
from comfyfarm.lock.online_packs import resolve_online
from comfyfarm.workflow.findings import Finding, Refused, has_errors
from comfyfarm.workflow.packs.pack import PackResolution
from comfyfarm.workflow.packs.policy import policy_findings
from comfyfarm.workflow.reader import read
from comfyfarm.workflow.references import References, find_references
from comfyfarm.workflow.schema import NodeSchema


class Wanted(NamedTuple):
    """What workflows want of a lock."""

    references: tuple[References, ...]
    hints: tuple[Hint, ...]
    packs: tuple[PackResolution, ...]
    findings: tuple[Finding, ...]
    """Of packs and policies."""


def read_workflows(
    names: Sequence[str],
    schema: NodeSchema,
    packs: KnownPacks,
    *,
    registry: str | None = None,
    ask_remotes: bool = False,
) -> Wanted:
    """Read them all. `registry`, `ask_remotes`: who is asked for what packs lack, as `resolve_online` says.

    Raises:
        InputError: one of them cannot be read, or is wrong.
        TryLater: the registry did not answer.
    """
    references: list[References] = []
    hints: list[Hint] = []
    resolutions: list[PackResolution] = []
    findings: dict[Finding, None] = {}
    for name in names:
        reading = read(read_file(name), name=name, schema=schema)
        if has_errors(reading.findings):
            raise Refused(name, reading.findings)
        references.append(find_references(reading.nodes, schema))
        hints.extend(hints_of(reading.nodes))
        resolved = resolve_online(
            reading.nodes,
            schema,
            index=packs.index,
            choices=packs.project.packs,
            registry=registry,
            ask_remotes=ask_remotes,
            run={node.class_type for node in reading.workflow.nodes},
        )
        resolutions.append(resolved)
        findings.update(dict.fromkeys(resolved.findings))
        findings.update(dict.fromkeys(policy_findings(reading.nodes, resolved, policy=packs.project.policy)))
    return Wanted(tuple(references), tuple(hints), tuple(resolutions), tuple(findings))
