"""The node pack of a class, as reports print it and locks pin it."""

from pydantic import BaseModel, ConfigDict

from comfyfarm.workflow.findings import Finding


class Pack(BaseModel):
    """The node pack that a class comes from; None stands for what is not known."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    class_type: str
    pack: str | None = None
    """The last part of its address; where that is not known, its id in the registry."""
    url: str | None = None
    commit: str | None = None
    """40 hex digits."""
    source: str | None = None
    """What told it: `choice`, `cnr_id`, `aux_id`, `host`, `node_map`, `siblings`, or `known`."""


class PackResolution(BaseModel):
    """One row for each class that is not ComfyUI's own, and what is to be said of them."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    packs: tuple[Pack, ...] = ()
    findings: tuple[Finding, ...] = ()
    needed: tuple[Pack, ...] = ()
    """The rows of classes that a server needs to run the graph: not of muted nodes or front-end types."""
