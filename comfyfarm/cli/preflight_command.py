"""`comfyfarm preflight`: one JSON object for each file, or a reading for people."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import click

from comfyfarm.addresses import is_address, mask, read_bytes
from comfyfarm.cli.edge import ends_with_exit_code, say
from comfyfarm.cli.schema_option import load_schema, schema_options
from comfyfarm.errors import InputError
from comfyfarm.farm.sources import WORKFLOW_LIMIT_BYTES
from comfyfarm.workflow.check import preflight
from comfyfarm.workflow.findings import Finding, Severity
from comfyfarm.workflow.report import Report
from comfyfarm.workflow.schema import NodeSchema


@click.command("preflight")
@click.argument("files", nargs=-1, required=True, metavar="FILE|DIR...")
@schema_options
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line for each file.")
@ends_with_exit_code
def command(files: tuple[str, ...], schema: str | None, schema_from: str | None, *, as_json: bool) -> None:
    """Read workflows: what they need, and what is wrong with them. Exit 1 on any error."""
    node_schema = load_schema(schema, schema_from)
    failed = False
    for name in _workflows(files):
        report = _report(name, node_schema)
        failed = failed or any(found.severity == "error" for found in report.findings)
        if as_json:
            click.echo(json.dumps(report.model_dump(mode="json"), ensure_ascii=False))
        else:
            _print(report)
    sys.exit(1 if failed else 0)


def _report(name: str, schema: NodeSchema) -> Report:
    """A file that cannot be read is a report too: the others still get theirs."""
    try:
        data = read_bytes(name, limit_bytes=WORKFLOW_LIMIT_BYTES)
    except InputError as exc:
        finding = Finding(
            code="unreadable",
            severity=Severity.ERROR,
            message=str(exc),
            remedy="name a file that can be read",
        )
        return Report(file=mask(name), format="unknown", findings=(finding,))
    return preflight(data, name=name, schema=schema)


def _workflows(names: tuple[str, ...]) -> Iterator[str]:
    for name in names:
        if not is_address(name) and Path(name).is_dir():
            found = sorted(str(path) for path in Path(name).rglob("*.json"))
            if not found:
                say(f"{name}: no .json file in it")
            yield from found
        else:
            yield name


def _print(report: Report) -> None:
    errors = sum(1 for found in report.findings if found.severity == "error")
    click.echo(f"{report.file}: {report.format}, {errors} errors, {len(report.references)} models")
    for found in report.findings:
        place = f"node {found.node}" if found.node else "file"
        place = f"{place}.{found.field}" if found.field else place
        click.echo(f"  {found.severity:7} {found.code}  {place}: {found.message}")
        if found.remedy:
            click.echo(f"          → {found.remedy}")
    for one in report.references:
        click.echo(f"  model   {one.folder}/{one.name}  (node {one.node} {one.class_type}.{one.input})")
    for loose in report.unclassified:
        click.echo(f"  unclear {loose.name}  (node {loose.node} {loose.class_type}.{loose.input})")
    for asset in report.assets:
        click.echo(f"  input   {asset.name}  (node {asset.node} {asset.class_type}.{asset.input})")
