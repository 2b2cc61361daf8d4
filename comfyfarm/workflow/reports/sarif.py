"""Reports as SARIF 2.1.0, which code hosts show beside the lines of a change.

Source: the OASIS standard, https://docs.oasis-open.org/sarif/sarif/v2.1.0/sarif-v2.1.0.html
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import quote

from comfyfarm import __version__
from comfyfarm.addresses import is_address
from comfyfarm.workflow.findings import Finding, Severity
from comfyfarm.workflow.names import slashed
from comfyfarm.workflow.reports.report import Report

_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_LEVELS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "note"}


def to_sarif(reports: Sequence[Report]) -> dict[str, Any]:
    """One run with a result for each finding; a rule for each code that occurs."""
    codes = sorted({finding.code for report in reports for finding in report.findings})
    rules = {code: number for number, code in enumerate(codes)}
    driver = {"name": "comfyfarm", "version": __version__, "rules": [_rule(code) for code in codes]}
    return {
        "$schema": _SCHEMA,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {"driver": driver},
                "columnKind": "unicodeCodePoints",
                "results": list(_results(reports, rules)),
            }
        ],
    }


def _rule(code: str) -> dict[str, Any]:
    words = code.replace("_", " ")
    return {"id": code, "name": code.title().replace("_", ""), "shortDescription": {"text": words}}


def _results(reports: Iterable[Report], rules: Mapping[str, int]) -> Iterable[dict[str, Any]]:
    for report in reports:
        for finding in report.findings:
            text = f"{finding.message}. To mend it: {finding.remedy}" if finding.remedy else finding.message
            yield {
                "ruleId": finding.code,
                "ruleIndex": rules[finding.code],
                "level": _LEVELS[finding.severity],
                "message": {"text": text},
                "locations": [_location(report, finding)],
            }


def _location(report: Report, finding: Finding) -> dict[str, Any]:
    """The file, from its beginning, since nodes have no lines; and the node as a place inside it."""
    place: dict[str, Any] = {
        "physicalLocation": {"artifactLocation": {"uri": _uri(report.file)}, "region": {"startLine": 1}}
    }
    if finding.node is not None:
        steps = [finding.node, finding.field] if finding.field else [finding.node]
        name = report.classes.get(finding.node, finding.node)
        place["logicalLocations"] = [{"name": name, "fullyQualifiedName": ".".join(steps), "kind": "element"}]
    return place


def _uri(file: str) -> str:
    """Relative paths stay relative: code hosts look for the file in the checkout."""
    if is_address(file):
        return file
    path = quote(slashed(file), safe="/:")
    if path.startswith("/"):
        return f"file://{path}"
    is_drive = path[1:2] == ":"
    return f"file:///{path}" if is_drive else path.replace(":", "%3A")
