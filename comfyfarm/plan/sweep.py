"""Sweeps: from `3.seed=1..50` and the like to the values of every job.

What stands behind the `=` is, in this order: `a..b` or `a..b..step`, whole numbers, both ends
included; `@FILE`, a line each; a JSON list, its elements; else one value for all jobs, JSON or text.
A JSON string is always one value, whatever is in it: `"1..5"`, `"@home"`.
"""

import itertools
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Literal

from pydantic import BaseModel, ConfigDict, JsonValue

from comfyfarm.errors import CatalogueError, OverrideError
from comfyfarm.plan.job_settings import JobSettings
from comfyfarm.workflow.graph import Workflow
from comfyfarm.workflow.overrides import Override, parse_override

MOST_JOBS = 1_000_000
"""More are a mistake, and would not fit into what reads the file."""

Way = Literal["product", "zip"]

_RANGE = re.compile(r"(-?\d{1,20})\.\.(-?\d{1,20})(?:\.\.(-?\d{1,20}))?")


class Axis(BaseModel):
    """One input, and the values that it takes."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    target: str
    values: tuple[Override, ...]
    is_list: bool
    """False for one value that all jobs share."""


def read_axis(text: str, workflow: Workflow, lines_of: Callable[[str], Sequence[str]]) -> Axis:
    """Read one `node.input=values`.

    Lines of a file are text where the workflow has text at this input, and JSON or else text elsewhere.

    Args:
        text: as it was written.
        workflow: tells what the input holds now.
        lines_of: the lines of a file, by its name, without blank ones.

    Raises:
        OverrideError: it has not this form, or holds no value.
    """
    target, _, written = text.partition("=")
    whole = parse_override(text)
    match = _RANGE.fullmatch(written)
    if match:
        return _axis(whole, _range(target, *match.groups()))
    if written.startswith("@") and len(written) > 1:
        lines = lines_of(written[1:])
        is_text = isinstance(_present(workflow, whole), str)
        return _axis(whole, [line if is_text else parse_override(f"{target}={line}").value for line in lines])
    if isinstance(whole.value, list):
        return _axis(whole, whole.value)
    return Axis(target=str(whole), values=(whole,), is_list=False)


def combine(axes: Sequence[Axis], way: Way) -> Iterator[tuple[Override, ...]]:
    """The values of each job: each with each, the last axis fastest, or those of one place in each list.

    Raises:
        OverrideError: one input twice, too many jobs, lists of unequal length.
    """
    _refuse_twins(axes)
    lists = [axis for axis in axes if axis.is_list]
    if way == "zip":
        return _zipped(axes, lists)
    count = 1
    for axis in lists:
        count *= len(axis.values)
    if count > MOST_JOBS:
        sizes = " x ".join(str(len(axis.values)) for axis in lists)
        raise OverrideError(f"{sizes} are {count} jobs; more than {MOST_JOBS} in one file are a mistake")
    return itertools.product(*(axis.values for axis in axes))


def job_lines(workflow: str, jobs: Iterable[Sequence[Override]], settings: JobSettings) -> Iterator[str]:
    """A job file, line by line, without line ends. `workflow`: as the lines are to name it."""
    more = {name: value for name, value in settings.settings.items() if value}
    for job in jobs:
        line = {"workflow": workflow, "set": {str(one): one.value for one in job}, **more}
        yield json.dumps(line, ensure_ascii=False)


def sweep_lines(data: bytes, *, name: str) -> tuple[str, ...]:
    """The lines of a file of values; blank ones, and blanks at their ends, are left out.

    Raises:
        CatalogueError: it is no text in UTF-8, or has no line.
    """
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as exc:
        raise CatalogueError(f"{name}: is no UTF-8 text; save it as UTF-8") from exc
    lines = tuple(line.strip() for line in text.split("\n") if line.strip())
    if "\0" in text:
        raise CatalogueError(f"{name}: the character U+0000 is in it; take it out: no workflow can hold it")
    if not lines:
        raise CatalogueError(f"{name}: there is no line in it; write one value a line")
    return lines


def _axis(whole: Override, values: Iterable[JsonValue]) -> Axis:
    made = tuple(whole.model_copy(update={"value": value}) for value in values)
    if not made:
        raise OverrideError(f"{whole}: the list is empty")
    return Axis(target=str(whole), values=made, is_list=True)


def _range(target: str, first: str, last: str, step: str | None) -> range:
    begin, end = int(first), int(last)
    stride = int(step) if step is not None else (1 if end >= begin else -1)
    if stride == 0 or (end - begin) * stride < 0:
        raise OverrideError(f"{target}={first}..{last}..{step}: no such step leads from {first} to {last}")
    values = range(begin, end + (1 if stride > 0 else -1), stride)
    if (end - begin) // stride >= MOST_JOBS:
        raise OverrideError(f"{target}: more than {MOST_JOBS} values in one file are a mistake")
    return values


def _present(workflow: Workflow, whole: Override) -> object:
    node = workflow.get(whole.node)
    return node.inputs.get(whole.input) if node is not None else None


def _refuse_twins(axes: Sequence[Axis]) -> None:
    seen: set[str] = set()
    for axis in axes:
        if axis.target in seen:
            raise OverrideError(f"{axis.target} is given twice; write one list")
        seen.add(axis.target)


def _zipped(axes: Sequence[Axis], lists: Sequence[Axis]) -> Iterator[tuple[Override, ...]]:
    lengths = {len(axis.values) for axis in lists}
    if len(lengths) > 1:
        told = ", ".join(f"{axis.target} has {len(axis.values)}" for axis in lists)
        raise OverrideError(f"--zip needs lists of equal length: {told}; --product takes each with each")
    count = lengths.pop() if lengths else 1
    columns = [axis.values if axis.is_list else axis.values * count for axis in axes]
    return zip(*columns, strict=True)
