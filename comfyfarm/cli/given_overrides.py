"""`--set NODE.INPUT=VALUE`, given on the command line: another form than this is wrong usage."""

from collections.abc import Iterable

from comfyfarm.errors import OverrideError, UsageError
from comfyfarm.workflow.overrides import Override, parse_override


def read_given(texts: Iterable[str]) -> tuple[Override, ...]:
    """The values of `--set`, in their order.

    Raises:
        UsageError: one has not the form `node.input=value`, or JSON that cannot be used; all at once.
    """
    found: list[Override] = []
    problems: list[str] = []
    for text in texts:
        try:
            found.append(parse_override(text))
        except OverrideError as exc:
            problems.append(f"--set {exc}")
    if problems:
        raise UsageError("\n".join(problems))
    return tuple(found)
