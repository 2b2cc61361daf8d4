"""What is wrong with a workflow, as values: a code, how bad, where, why, and what to do."""

from collections.abc import Iterable, Sequence
from enum import StrEnum

from pydantic import BaseModel, ConfigDict

from comfyfarm.addresses import mask
from comfyfarm.errors import WorkflowError
from comfyfarm.ids import NodeId


class Severity(StrEnum):
    """How bad a finding is. Only an error stops anything."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


class Finding(BaseModel):
    """One thing to know about a workflow. `code` is stable; people filter by it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    code: str
    severity: Severity
    node: NodeId | None = None
    """Id of the node as in the API graph; None when the file as a whole is meant."""
    field: str | None = None
    """Name of the input or key; None when the node as a whole is meant."""
    message: str
    remedy: str

    def __str__(self) -> str:
        node = f"node {self.node}" if self.node is not None else ""
        place = " ".join(part for part in (node, self.field) if part)
        return f"{place}: {self.message}; {self.remedy}" if place else f"{self.message}; {self.remedy}"


class Refused(WorkflowError):
    """A workflow that cannot be read or run, with all findings that say why."""

    def __init__(self, name: str, findings: Sequence[Finding]) -> None:
        # args equal __init__'s own, so that the error survives pickling.
        super().__init__(name, tuple(findings))
        self.name = name
        self.findings = tuple(findings)

    def __str__(self) -> str:
        """The errors; where there is none, the warnings. What is only for the curious refuses nothing."""
        worst = next((one for one in Severity if any(f.severity is one for f in self.findings)), None)
        return "\n".join(f"{mask(self.name)}: {one}" for one in self.findings if one.severity is worst)


def error(
    code: str, message: str, remedy: str, *, node: NodeId | None = None, field: str | None = None
) -> Finding:
    """A finding that stops the workflow."""
    return Finding(code=code, severity=Severity.ERROR, node=node, field=field, message=message, remedy=remedy)


def warning(
    code: str, message: str, remedy: str, *, node: NodeId | None = None, field: str | None = None
) -> Finding:
    """A finding that people should see and that stops nothing."""
    return Finding(
        code=code, severity=Severity.WARNING, node=node, field=field, message=message, remedy=remedy
    )


def info(
    code: str, message: str, remedy: str, *, node: NodeId | None = None, field: str | None = None
) -> Finding:
    """A finding for the curious."""
    return Finding(code=code, severity=Severity.INFO, node=node, field=field, message=message, remedy=remedy)


def has_errors(findings: Iterable[Finding]) -> bool:
    """Whether any of these stops the workflow."""
    return any(finding.severity is Severity.ERROR for finding in findings)
