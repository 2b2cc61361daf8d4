"""`comfyfarm batch make WORKFLOW --set 3.seed=1..50 …`: writes the job file of a sweep."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from comfyfarm.addresses import is_address, read_bytes
from comfyfarm.cli.edge import ends_with_exit_code, say
from comfyfarm.cli.given_overrides import read_given
from comfyfarm.cli.whole_file import whole_file
from comfyfarm.errors import CatalogueError, UsageError
from comfyfarm.farm.sources import JOB_FILE_LIMIT_BYTES, WORKFLOW_LIMIT_BYTES
from comfyfarm.plan.job_settings import JobSettings, read_settings, settings_problems
from comfyfarm.plan.sweep import Way, combine, job_lines, read_axis, sweep_lines
from comfyfarm.workflow.overrides import apply_overrides
from comfyfarm.workflow.reading.reader import read_workflow
from comfyfarm.workflow.schema import NodeSchema

_SUFFIXES = (".jsonl", ".ndjson")


@click.group("batch")
def command() -> None:
    """Make job files for `comfyfarm render`."""


@command.command("make")
@click.argument("workflow")
@click.option(
    "--set", "settings", multiple=True, required=True, metavar="NODE.INPUT=VALUES", help="One or many values."
)
@click.option("--product", "way", flag_value="product", default="product", help="Each with each (default).")
@click.option("--zip", "way", flag_value="zip", help="The first values together, then the second ones, …")
@click.option("-o", "--output", type=click.Path(path_type=Path), metavar="FILE", help="Default: stdout.")
@click.option("--priority", type=int, help="Higher runs first.")
@click.option("--tenant", help="For whom the jobs are.")
@ends_with_exit_code
def make(
    workflow: str,
    settings: tuple[str, ...],
    *,
    way: Way,
    output: Path | None,
    priority: int | None,
    tenant: str | None,
) -> None:
    """Write a job file: one job for each combination of values.

    \b
    VALUES are
      1..50         whole numbers, both ends included; 1..50..5 in steps of 5, 9..0 downwards
      @prompts.txt  a line each, blank lines skipped; lines are text where the workflow has text at
                    that input, elsewhere JSON or else text
      [1, 2.5, 3]   a JSON list: its elements; ["a fox", "a tram"] for text, [[1, 2]] for one list
      7 or a fox    one value for all jobs: JSON, or else text; "1..5" in quotes is text, too

    Of a product the last --set changes fastest. The workflow is named relative to FILE, where it can
    be; on stdout by its whole path.
    """  # noqa: D301 - click wants the control character itself
    jobs_settings = _job_settings(priority, tenant)
    read_given(settings)
    graph = read_workflow(read_bytes(workflow, limit_bytes=WORKFLOW_LIMIT_BYTES), name=workflow)
    axes = [read_axis(text, graph, _lines_of) for text in settings]
    apply_overrides(graph, [axis.values[0] for axis in axes], schema=NodeSchema.shipped())
    lines = job_lines(_named_from(output, workflow), combine(axes, way), jobs_settings)
    if output is None:
        for line in lines:
            click.echo(line)
    else:
        count = _write(output, lines)
        say(f"{output}: {count} jobs; comfyfarm render {output} renders them")


def _job_settings(priority: int | None, tenant: str | None) -> JobSettings:
    raw: dict[str, Any] = {"priority": priority, "tenant": tenant}
    problems = list(settings_problems(raw))
    if problems:
        raise UsageError("\n".join(f"--{problem}" for problem in problems))
    return read_settings(raw)


def _lines_of(name: str) -> Sequence[str]:
    return sweep_lines(read_bytes(name, limit_bytes=JOB_FILE_LIMIT_BYTES), name=name)


def _named_from(output: Path | None, workflow: str) -> str:
    """The workflow as the lines of `output` must name it. Links in paths are followed on both sides."""
    if is_address(workflow):
        return workflow
    file = Path(workflow).resolve()
    if output is None:
        return str(file)
    if not output.name.lower().endswith(_SUFFIXES):
        raise UsageError(f"{output}: `render` knows a job file by its ending; name it {output}.jsonl")
    try:
        return Path(os.path.relpath(file, output.parent.resolve())).as_posix()
    except ValueError:  # on another drive
        return str(file)


def _write(path: Path, lines: Iterator[str]) -> int:
    """Write the file whole or not at all; how many lines it has."""
    count = 0
    with whole_file(path) as partial:
        with partial.open("w", encoding="utf-8", newline="\n") as file:
            for line in lines:
                file.write(line + "\n")
                count += 1
        if partial.stat().st_size > JOB_FILE_LIMIT_BYTES:
            raise CatalogueError(f"{path}: larger than the {JOB_FILE_LIMIT_BYTES} bytes that `render` reads")
    return count
