"""What `comfyfarm preflight` prints: one object a file. Its form is the contract with outsiders."""

from collections.abc import Mapping

from pydantic import BaseModel, ConfigDict, Field

from comfyfarm.ids import NodeId
from comfyfarm.workflow.assets import Asset
from comfyfarm.workflow.findings import Finding as Finding
from comfyfarm.workflow.findings import Severity as Severity
from comfyfarm.workflow.findings import has_errors
from comfyfarm.workflow.packs.pack import Pack as Pack
from comfyfarm.workflow.references.find import Reference, Unclassified


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
    classes: Mapping[NodeId, str] = Field(default={}, exclude=True)
    """The class of each node, for people; not part of the JSON."""

    @property
    def has_errors(self) -> bool:
        """Whether any finding stops the workflow."""
        return has_errors(self.findings)
