"""Wrong values of a node whose values stand under the wrong names: one cause, told as such."""

from collections.abc import Iterable, Iterator

from comfyfarm.workflow.findings import Finding

_OF_VALUES = frozenset({"wrong_type", "not_in_list"})


def with_shifts(findings: Iterable[Finding], noticed: Iterable[Finding]) -> Iterator[Finding]:
    """The findings; what to do about values is another thing where all values of the node are shifted.

    `noticed`: what was said when the file was read, `misplaced_values` among it.
    """
    shifted = {found.node for found in noticed if found.code == "misplaced_values"}
    for found in findings:
        if found.node in shifted and found.code in _OF_VALUES:
            remedy = f"the file's values seem shifted: see misplaced_values; if they are not, {found.remedy}"
            yield found.model_copy(update={"remedy": remedy})
        else:
            yield found
