"""What `comfyfarm preflight` prints: one object a file. Its form is the contract with outsiders."""

from pydantic import BaseModel, ConfigDict

from comfyfarm.workflow.assets import Asset
from comfyfarm.workflow.findings import Finding as Finding
from comfyfarm.workflow.findings import Severity as Severity
from comfyfarm.workflow.findings import has_errors
from comfyfarm.workflow.references import Reference, Unclassified


class Pack(BaseModel):
    """The node pack that a class comes from. None is looked up yet."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    class_type: str
    pack: str | None = None
    url: str | None = None
    commit: str | None = None
    source: str | None = None


class Report(BaseModel):
    """All that is known of a workflow before anything is paid for."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    file: str
    format: str
    """`api`, `ui`, or `unknown` when it could not be read."""
    findings: tuple[Finding, ...] = ()
    references: tuple[Reference, ...] = ()
    unclassified: tuple[Unclassified, ...] = ()
    packs: tuple[Pack, ...] = ()
    assets: tuple[Asset, ...] = ()

    @property
    def has_errors(self) -> bool:
        """Whether any finding stops the workflow."""
        return has_errors(self.findings)
