"""`comfyfarm preflight`: one JSON object for each file, a SARIF log of all, or a reading for people."""

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field

import click

from comfyfarm.addresses import mask
from comfyfarm.cli.edge import ends_with_exit_code, say
from comfyfarm.cli.job_file_hint import with_job_file_hint
from comfyfarm.cli.pack_options import PackSources, known_index, load_project, pack_options
from comfyfarm.cli.report_view import print_report
from comfyfarm.cli.schema_option import load_schema, schema_options
from comfyfarm.cli.workflow_files import is_media, listed, read_file
from comfyfarm.errors import InputError, UsageError
from comfyfarm.workflow.findings import Refused, error
from comfyfarm.workflow.packs.index import PackIndex
from comfyfarm.workflow.preflight import PackRules, preflight
from comfyfarm.workflow.reading.reader import EMPTY
from comfyfarm.workflow.reports.report import Report
from comfyfarm.workflow.reports.sarif import to_sarif
from comfyfarm.workflow.schema import NodeSchema
from comfyfarm.workflow.shown import counted

_NO_GRAPH = "not_comfy_metadata"
_NO_WORKFLOW = "not_a_workflow"
_NAMED = 3  # files in the line on those that are passed over


@dataclass(frozen=True)
class _Asked:
    """What all files are looked at with."""

    schema: NodeSchema
    index: PackIndex
    config: str | None


@dataclass
class _Passed:
    """What was found in folders and is no workflow; grows while files are read."""

    media: int = 0
    others: list[str] = field(default_factory=list)

    @property
    def count(self) -> int:
        return self.media + len(self.others)


@click.command("preflight")
@click.argument("files", nargs=-1, required=True, metavar="FILE|DIR...")
@schema_options
@pack_options
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line for each file.")
@click.option("--sarif", "as_sarif", is_flag=True, help="One SARIF 2.1.0 log of all files, for CI.")
@ends_with_exit_code
def command(
    files: tuple[str, ...],
    schema: str | None,
    schema_from: str | None,
    node_map: tuple[str, ...],
    custom_nodes: str | None,
    host_packs: str | None,
    config: str | None,
    *,
    as_json: bool,
    as_sarif: bool,
) -> None:
    """Read workflows: what they need, and what is wrong with them.

    FILE is a workflow of any format: API or UI, the body of a request, or a picture, video or sound that
    ComfyUI wrote. A DIR is searched, with all folders in it, for .json files and for such media; media
    without a graph, and JSON that is something else, are passed over there.

    Exit status: 1 on any error in a file, 2 when a call or comfyfarm.toml is wrong or a DIR holds nothing
    of that kind, 3 when an address or the server of --schema-from does not answer, or answers anything else.
    """
    if as_json and as_sarif:
        raise UsageError("--json and --sarif exclude each other")
    try:
        asked = _Asked(
            load_schema(schema, schema_from),
            known_index(PackSources(node_map, custom_nodes, host_packs, schema_from)),
            config,
        )
    except InputError as exc:
        if as_json:
            _print_refused(files, exc)
        raise
    reports, passed = [], _Passed()
    for report in _reports(files, asked, passed):
        if as_json:
            click.echo(json.dumps(report.model_dump(mode="json"), ensure_ascii=False))
        elif not as_sarif:
            print_report(report)
        reports.append(report)
    _say_passed(passed)
    if not reports:  # a wrong path in CI must not pass
        raise UsageError("no file with a graph is in what was named; name another folder")
    if as_sarif:
        click.echo(json.dumps(to_sarif(reports), ensure_ascii=False, indent=2))
    elif not as_json:
        _say_total(reports, passed)
    sys.exit(1 if any(report.has_errors for report in reports) else 0)


def _reports(files: tuple[str, ...], asked: _Asked, passed: _Passed) -> Iterator[Report]:
    """One for each file; those found in a folder that are certainly no workflows are passed over."""
    named = frozenset(files)
    for name in listed(files):
        report = _report(name, asked)
        if name not in named and is_media(name) and {f.code for f in report.findings} == {_NO_GRAPH}:
            passed.media += 1
        elif name not in named and _is_no_workflow(report):
            passed.others.append(report.file)
        else:
            yield report


def _is_no_workflow(report: Report) -> bool:
    """Good JSON of something else. An empty file may have been one, and is a report."""
    return {f.code for f in report.findings} == {_NO_WORKFLOW} and report.findings[0].message != EMPTY


def _say_passed(passed: _Passed) -> None:
    if passed.media:
        verb = "is" if passed.media == 1 else "are"
        say(f"{counted(passed.media, 'media file')} without a graph {verb} passed over")
    if passed.others:
        count = len(passed.others)
        what = "file that is no workflow is" if count == 1 else "files that are no workflows are"
        more = ", …" if count > _NAMED else ""
        say(f"{count} {what} passed over: {', '.join(passed.others[:_NAMED])}{more}")


def _say_total(reports: list[Report], passed: _Passed) -> None:
    """One line on all files, where there is more than one."""
    count = len(reports) + passed.count
    if count > 1:
        wrong = sum(report.has_errors for report in reports)
        over = f", {passed.count} passed over" if passed.count else ""
        say(f"{count} files: {wrong} with errors{over}")


def _print_refused(files: tuple[str, ...], exc: InputError) -> None:
    """No file is looked at, and each has its line."""
    wrong = exc.findings if isinstance(exc, Refused) else ()
    found = wrong or (error("unreadable", str(exc), "name a file that can be read"),)
    for name in files:
        report = Report(file=mask(name), format="unknown", findings=found)
        click.echo(json.dumps(report.model_dump(mode="json"), ensure_ascii=False))


def _report(name: str, asked: _Asked) -> Report:
    """A file that cannot be read is a report too: the others still get theirs."""
    project = load_project(asked.config, name)
    try:
        data = read_file(name)
    except InputError as exc:
        found = error("unreadable", str(exc), "name a file that can be read")
        return Report(file=mask(name), format="unknown", findings=(found,))
    rules = PackRules(index=asked.index, choices=project.packs, policy=project.policy)
    report = preflight(data, name=name, schema=asked.schema, packs=rules)
    return report.model_copy(update={"findings": with_job_file_hint(report.findings, data)})
