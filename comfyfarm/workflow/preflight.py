"""Preflight: everything that can be known of a workflow file before a GPU is paid for."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TypeVar

from comfyfarm.addresses import mask
from comfyfarm.workflow.assets import Asset, find_assets
from comfyfarm.workflow.checks.check import check
from comfyfarm.workflow.checks.shifted import with_shifts
from comfyfarm.workflow.file_node import Editor
from comfyfarm.workflow.findings import Finding, Refused
from comfyfarm.workflow.gc_pause import gc_paused
from comfyfarm.workflow.packs.index import PackIndex
from comfyfarm.workflow.packs.pack import PackResolution
from comfyfarm.workflow.packs.policy import Policy, policy_findings
from comfyfarm.workflow.packs.resolve import NO_INDEX, resolve_packs
from comfyfarm.workflow.reading.reader import Reading, read
from comfyfarm.workflow.references.find import Reference, find_references, reference_findings
from comfyfarm.workflow.reports.report import Report
from comfyfarm.workflow.schema import NodeSchema


@dataclass(frozen=True)
class PackRules:
    """What is known of node packs, what was chosen, and what is let in. By default nothing is forbidden."""

    index: PackIndex = NO_INDEX
    choices: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Address of the repository by class."""
    policy: Policy = field(default_factory=Policy)


Named = TypeVar("Named", Reference, Asset)

_NO_RULES = PackRules()


def preflight(
    data: bytes, *, name: str, schema: NodeSchema, editor: Editor = "1.58", packs: PackRules = _NO_RULES
) -> Report:
    """Read a workflow file and report on it. What cannot be read is a report as well."""
    with gc_paused():
        try:
            reading = read(data, name=name, schema=schema, editor=editor)
        except Refused as exc:
            return Report(file=mask(name), format="unknown", findings=exc.findings)
        return report_on(reading, name=name, schema=schema, packs=packs)


def report_on(reading: Reading, *, name: str, schema: NodeSchema, packs: PackRules = _NO_RULES) -> Report:
    """The report on a file that has been read."""
    references = find_references(reading.nodes, schema)
    resolved = resolve_packs(
        reading.nodes,
        schema,
        index=packs.index,
        choices=packs.choices,
        run={node.class_type for node in reading.workflow.nodes},
    )
    checked = check(
        reading.workflow,
        schema,
        check_files=schema.live,
        from_editor=reading.format == "ui",
        packs=_names(resolved).get,
    )
    return Report(
        file=mask(name),
        format=reading.format,
        findings=_once(
            *reading.findings,
            *with_shifts(checked, reading.findings),
            *reference_findings(reading.nodes, references, schema),
            *resolved.findings,
            *policy_findings(reading.nodes, resolved, policy=packs.policy),
        ),
        references=tuple(_without_secrets(one) for one in references.references),
        unclassified=references.unclassified,
        packs=resolved.packs,
        assets=tuple(_without_secrets(one) for one in find_assets(reading.nodes, schema)),
        classes={node.id: node.class_type for node in reading.nodes},
    )


def _without_secrets(one: Named) -> Named:
    """The same with an address as it may be printed; all other names stay as the file has them."""
    if one.kind != "url":
        return one
    return one.model_copy(update={"name": mask(str(one.name)), "path": mask(str(one.path))})


def _names(resolved: PackResolution) -> dict[str, str]:
    """How to call the pack of a class, where it is known."""
    return {row.class_type: name for row in resolved.packs if (name := row.url or row.pack)}


def _once(*findings: Finding) -> tuple[Finding, ...]:
    """Each finding once: reading and checking may see the same."""
    return tuple({_key(one): one for one in findings}.values())


def _key(finding: Finding) -> tuple[str, str | None, str | None, str]:
    return finding.code, finding.node, finding.field, finding.message
