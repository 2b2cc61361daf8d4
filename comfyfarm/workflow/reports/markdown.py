"""A preflight report as Markdown, for the dashboard."""

from collections.abc import Iterable, Iterator, Sequence

from comfyfarm.workflow.findings import Severity
from comfyfarm.workflow.reports.report import Report
from comfyfarm.workflow.shown import counted

_ROWS = 200  # of one table; a dashboard is no archive, and `comfyfarm preflight` shows all
_SHOWN = 300  # characters of a cell


def to_markdown(reports: Sequence[Report]) -> str:
    """One section a file: findings by severity, then models, packs and inputs as tables."""
    return "\n\n".join("\n".join(_section(report)) for report in reports)


def _section(report: Report) -> Iterator[str]:
    errors, warnings = (
        sum(found.severity is severity for found in report.findings)
        for severity in (Severity.ERROR, Severity.WARNING)
    )
    yield f"# {_cell(report.file)}"
    counts = (
        counted(errors, "error"),
        counted(warnings, "warning"),
        counted(len(report.references), "model"),
    )
    yield f"{report.format} format, {', '.join(counts)}"
    order = list(Severity)
    findings = sorted(report.findings, key=lambda found: order.index(found.severity))
    yield from _table(
        "Findings",
        ("severity", "code", "node", "field", "what", "what to do"),
        ((f.severity, f.code, f.node, f.field, f.message, f.remedy) for f in findings),
    )
    yield from _table(
        "Models",
        ("folder", "path", "kind", "active", "node", "class"),
        ((r.folder, r.path, r.kind, r.active, r.node, r.class_type) for r in report.references),
    )
    yield from _table(
        "Looks like a model, and could not be placed",
        ("name", "node", "class", "input"),
        ((u.name, u.node, u.class_type, u.input) for u in report.unclassified),
    )
    yield from _table(
        "Node packs",
        ("class", "pack", "address", "commit", "known from"),
        ((p.class_type, p.pack, p.url, p.commit, p.source) for p in report.packs),
    )
    yield from _table(
        "Input files",
        ("name", "node", "class", "input"),
        ((a.name, a.node, a.class_type, a.input) for a in report.assets),
    )


def _table(title: str, head: Sequence[str], rows: Iterable[Sequence[object]]) -> Iterator[str]:
    cells = [[_cell(value) for value in row] for row in rows]
    if not cells:
        return
    yield f"\n## {title}\n"
    yield f"| {' | '.join(head)} |"
    yield f"|{'---|' * len(head)}"
    yield from (f"| {' | '.join(row)} |" for row in cells[:_ROWS])
    if len(cells) > _ROWS:
        yield f"\n… and {len(cells) - _ROWS} more: `comfyfarm preflight` shows all."


def _cell(value: object) -> str:
    """One cell of a table: names in files are no Markdown."""
    if value is None:
        return ""
    text = " ".join(str(value).split())
    text = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
    return "".join(f"\\{sign}" if sign in r"\`*_{}[]<>#|~" else sign for sign in text)
