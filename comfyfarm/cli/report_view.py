"""A preflight report as people read it: what is wrong first, then what is needed."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby

import click

from comfyfarm.addresses import mask
from comfyfarm.ids import NodeId
from comfyfarm.workflow.assets import Asset
from comfyfarm.workflow.findings import Finding, Severity
from comfyfarm.workflow.packs.pack import Pack
from comfyfarm.workflow.references.find import Reference
from comfyfarm.workflow.reports.report import Report
from comfyfarm.workflow.shown import counted

_COLOURS = {Severity.ERROR: "red", Severity.WARNING: "yellow", Severity.INFO: "cyan"}
_ALIKE = 5  # places of one finding that are shown one by one


def print_report(report: Report) -> None:
    """The report of one file, on stdout."""
    for line in report_lines(report):
        click.echo(line)


def report_lines(report: Report) -> Iterator[str]:
    """The lines of it, coloured where the terminal is one."""
    counts = Counter(found.severity for found in report.findings)
    head = f"{report.file}: {report.format}, {counted(len(report.classes), 'node')}, "
    yield click.style(
        head + ", ".join(counted(counts[one], one.value) for one in (Severity.ERROR, Severity.WARNING)),
        bold=True,
    )
    for severity in Severity:
        yield from _findings([f for f in report.findings if f.severity is severity], report)
    yield from _section("models", _models(report.references))
    yield from _section(
        "unclear", (f"{mask(u.name)}  {_place(report, u.node, u.input)}" for u in report.unclassified)
    )
    yield from _section("packs", _packs(report.packs))
    yield from _section("inputs", _inputs(report.assets))


def _findings(found: Sequence[Finding], report: Report) -> Iterator[str]:
    """Each kind once with its places: a graph of fifty such nodes is one story."""
    key: Callable[[Finding], tuple[str, str]] = lambda f: (f.code, f.remedy)  # noqa: E731
    for (code, remedy), group in groupby(sorted(found, key=key), key):
        alike = list(group)
        colour = _COLOURS[alike[0].severity]
        yield f"  {click.style(alike[0].severity.value, fg=colour)} {code}"
        for one in alike[:_ALIKE]:
            place = _place(report, one.node, one.field)
            yield f"      {place}: {one.message}" if place else f"      {one.message}"
        if len(alike) > _ALIKE:
            yield f"      … and {len(alike) - _ALIKE} more like these"
        if remedy:
            yield f"      → {remedy}"


def _place(report: Report, node: NodeId | None, field: str | None) -> str:
    if node is None:
        return field or ""
    name = f"node {node} {report.classes.get(node, '')}".rstrip()
    return f"{name}.{field}" if field else name


def _section(title: str, lines: Iterable[str]) -> Iterator[str]:
    for number, line in enumerate(lines):
        yield f"  {title if number == 0 else '':8}{line}"


def _models(references: Sequence[Reference]) -> Iterator[str]:
    """Each file once, with the nodes that name it."""
    key: Callable[[Reference], tuple[str, str, str, bool]] = lambda r: (  # noqa: E731
        r.folder or r.kind.value,
        mask(r.path or "(by itself)"),
        r.kind.value,
        not r.active,
    )
    for (folder, path, kind, is_idle), group in groupby(sorted(references, key=key), key):
        nodes = ", ".join(dict.fromkeys(f"{one.node} {one.class_type}" for one in group))
        notes = [note for note in (kind if kind != "file" else "", "not active" if is_idle else "") if note]
        yield f"{folder}/{path}  ({'; '.join([*notes, f'node {nodes}'])})"


def _packs(packs: Sequence[Pack]) -> Iterator[str]:
    key: Callable[[Pack], tuple[str, str, str]] = lambda p: (p.pack or "", p.url or "", p.commit or "")  # noqa: E731
    for (name, url, commit), group in groupby(sorted(packs, key=key), key):
        classes = ", ".join(dict.fromkeys(one.class_type for one in group))
        yield f"{name or '(no pack known)'}  {url} {commit[:12] or 'no commit'}  ({classes})".replace(
            "   ", "  "
        )


def _inputs(assets: Sequence[Asset]) -> Iterator[str]:
    for asset in assets:
        idle = "" if asset.active else "not active; "
        yield f"{mask(asset.name)}  ({idle}node {asset.node} {asset.class_type}.{asset.input})"
