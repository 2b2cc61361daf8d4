"""What a user asks to be rendered, as one value: the command and the flows both make it."""

from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, JsonValue

from comfyfarm.lock.project_file import ProjectFile
from comfyfarm.run.deadlines import Deadlines
from comfyfarm.run.retry import RetryPolicy


class RenderRequest(BaseModel):
    """A batch: workflow or job file, what it needs, where it runs, where its outputs go."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    workflow: str | dict[str, Any] | None = None
    """Path or address of a workflow of any format, or the graph itself."""
    job_file: str | None = None
    """Path or address of a file with one job a line. Either this or `workflow`."""
    overrides: dict[str, JsonValue] = {}
    """`node.input` → value, for each job; a job's own win."""
    lock: str | dict[str, Any] | None = None
    """Path or address of the lock, or the lock itself; default: `comfyfarm.lock` beside the workflow."""
    out: str
    """Folder or `s3://bucket/prefix` for the outputs."""
    servers: tuple[str, ...]
    """Base addresses of ComfyUI servers."""
    batch: str | None = None
    """Name of the batch; the default is made of its contents."""
    mirror: str | None = None
    cache_dir: Path
    models_dir: Path | None = None
    """Where the servers look for models. Without it nothing is downloaded."""
    inputs_dir: Path | None = None
    """Where input assets are looked for after the workflow's own folder."""
    host: str
    """Name of the host that the servers belong to, as in the tag `gpu:<host>`."""
    project: ProjectFile = ProjectFile()
    """Which packs were chosen, and what is let in, as `comfyfarm.toml` says it."""
    deadlines: Deadlines = Deadlines()
    retries: RetryPolicy = RetryPolicy()
