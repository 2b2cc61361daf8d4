"""From a request to a plan: jobs, the models they need, their input files. Nothing runs yet."""

import hashlib
import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from comfyfarm.addresses import is_address
from comfyfarm.errors import AssetsMissing, FarmError, OverrideError, WorkflowError
from comfyfarm.farm.reading import read_to_render
from comfyfarm.farm.ready import Planned, Ready, checked, ready_jobs, refuse_pickles
from comfyfarm.farm.request import RenderRequest
from comfyfarm.farm.sources import INLINE, Sources
from comfyfarm.ids import JobId, Sha256
from comfyfarm.lock.lockfile import LockedModel, read_lock
from comfyfarm.lock.pins import pin
from comfyfarm.plan.batch import plan_batch
from comfyfarm.plan.job import JobSpec
from comfyfarm.plan.order_of_models import Ranks, order_models
from comfyfarm.plan.order_of_use import ranks_of
from comfyfarm.workflow.assets import Asset, find_assets
from comfyfarm.workflow.findings import Severity
from comfyfarm.workflow.overrides import read_overrides
from comfyfarm.workflow.references.find import Reference, References, Unclassified, find_references
from comfyfarm.workflow.schema import NodeSchema

logger = logging.getLogger(__name__)

_RANKED = 16


class AssetFile(BaseModel):
    """An input file that a graph names, found on this host."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    graph_digest: Sha256
    name: str
    """As the graph writes it."""
    file: Path
    sha256: Sha256
    job: JobId | None = None
    """The one job that it is for: the same graph lies in another folder, beside another file of this name."""

    @property
    def key(self) -> tuple[str, str]:
        """Who uses it, a job or every job of a graph, and under which name."""
        return self.job or self.graph_digest, self.name

    def is_same(self, other: "AssetFile") -> bool:
        """Whether a server gets the same file, under the same name."""
        return (self.sha256, self.file.name) == (other.sha256, other.file.name)


class Prepared(BaseModel):
    """A batch that can start: all of it checked, pinned and found."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    batch: str
    out: str
    jobs: tuple[JobSpec, ...]
    graphs: Mapping[str, str]
    """Canonical JSON of each workflow, by its digest."""
    models: tuple[LockedModel, ...]
    needed: tuple[Reference, ...]
    """What every server must offer, each name once."""
    lock_digest: str | None
    assets: tuple[AssetFile, ...]
    warnings: tuple[str, ...]
    unfit: Mapping[Sha256, str] = {}
    """Node schemas, by their digests, under which it cannot run, and why: their servers are left out."""


def plan_jobs(request: RenderRequest, sources: Sources) -> Planned:
    """Name the batch and its jobs; the same call gives the same ids.

    Raises:
        InputError: a file that is no workflow.
        JobConflict: one id twice.
    """
    readings = {name: read_to_render(data, name=name) for name, data in sources.workflows.items()}
    graphs = {name: reading.workflow for name, reading in readings.items()}
    specs = plan_batch(
        sources.jobs,
        {name: graph.digest for name, graph in graphs.items()},
        stem=sources.stem,
        out=request.out,
        batch=request.batch,
        overrides=read_overrides(request.overrides),
    )
    noticed = (
        f"{name}: {found}"
        for name, reading in readings.items()
        for found in reading.findings
        if found.severity is Severity.WARNING
    )
    return Planned(batch=specs[0].batch, jobs=specs, workflows=graphs, warnings=tuple(noticed))


def prepare_for_all(request: RenderRequest, sources: Sources, schemas: Iterable[NodeSchema]) -> Prepared:
    """Prepare for the servers of all these node schemas; those under which something cannot run are unfit.

    Raises:
        InputError: none is left, or what no server can mend: an unlocked model, a missing input file.
    """
    distinct = {schema.offers_sha256: schema for schema in schemas}
    fit: list[Prepared] = []
    unfit: dict[Sha256, WorkflowError | OverrideError] = {}
    for digest, schema in distinct.items():
        try:
            fit.append(prepare(request, sources, schema))
        except (WorkflowError, OverrideError) as exc:
            unfit[digest] = exc
    if not fit:
        raise _all_unfit([(distinct[digest].name, exc) for digest, exc in unfit.items()])
    return _together(fit).model_copy(update={"unfit": {digest: str(exc) for digest, exc in unfit.items()}})


def _all_unfit(faults: Sequence[tuple[str, WorkflowError | OverrideError]]) -> WorkflowError | OverrideError:
    """All that is wrong; by server only where they differ."""
    if len({str(exc) for _, exc in faults}) == 1:
        return faults[0][1]
    return WorkflowError("\n".join(f"on {name}:\n{exc}" for name, exc in faults))


def _together(fit: Sequence[Prepared]) -> Prepared:
    """One plan for servers that differ: what any of them needs."""
    return fit[0].model_copy(
        update={
            "models": tuple({(one.folder, one.path): one for each in fit for one in each.models}.values()),
            "needed": tuple(dict.fromkeys(one for each in fit for one in each.needed)),
            "assets": tuple({one.key: one for each in fit for one in each.assets}.values()),
            "warnings": tuple(dict.fromkeys(one for each in fit for one in each.warnings)),
        }
    )


def prepare(request: RenderRequest, sources: Sources, schema: NodeSchema) -> Prepared:
    """Check every job's graph, pin its models and find its input files; all faults at once.

    Raises:
        InputError: a graph that cannot run, an unlocked model, a missing input file.
    """
    planned = plan_jobs(request, sources)
    lock = read_lock(sources.lock, name=sources.lock_name) if sources.lock is not None else None
    ready = ready_jobs(request, sources.jobs, planned, schema)
    warnings = checked(ready, schema, request.project)
    needed = _references(ready, schema)
    pinned = pin(needed, lock, workflows=list(sources.workflows), lock_name=sources.lock_name)
    models = order_models(pinned, _ranks(ready, schema)) if pinned else ()
    refuse_pickles(models, request.project.policy, sources.lock_name)
    return Prepared(
        batch=planned.batch,
        out=request.out,
        jobs=planned.jobs,
        graphs={graph.digest: json.dumps(graph.to_api()) for graph in planned.workflows.values()},
        models=models,
        needed=needed.references,
        lock_digest=lock.digest if lock is not None else None,
        assets=_assets(request, ready, schema),
        warnings=tuple(dict.fromkeys((*planned.warnings, *warnings))),
    )


def _references(ready: Sequence[Ready], schema: NodeSchema) -> References:
    """Of all jobs together, each name once for each class and input."""
    found: dict[tuple[Any, ...], Reference] = {}
    loose: dict[tuple[Any, ...], Unclassified] = {}
    for graph in {one.graph.digest: one.graph for one in ready}.values():
        references = find_references(graph, schema)
        for reference in references.references:
            found.setdefault(
                (reference.class_type, reference.input, reference.name, reference.folder), reference
            )
        for text in references.unclassified:
            loose.setdefault((text.class_type, text.input, text.name), text)
    return References(references=tuple(found.values()), unclassified=tuple(loose.values()))


def _ranks(ready: Sequence[Ready], schema: NodeSchema) -> Ranks:
    """When the first prompts need which model: later ones rarely name others, and there may be thousands."""
    graphs = list({one.graph.digest: one.graph for one in ready}.values())[:_RANKED]
    return ranks_of(
        ((graph, find_references(graph, schema).references) for graph in graphs), schema.is_output_node
    )


def _assets(request: RenderRequest, ready: Sequence[Ready], schema: NodeSchema) -> tuple[AssetFile, ...]:
    found: dict[tuple[str, str], AssetFile] = {}
    missing: dict[str, None] = {}
    look = cache(lambda path, source: _asset_file(path, source, request.inputs_dir))
    digest = cache(_sha256)
    for one in ready:
        for asset in filter(is_uploaded, find_assets(one.graph, schema)):
            file = None if asset.escapes else look(asset.path, one.source)
            if file is None:
                missing[f"{asset.name} (node {asset.node} {asset.class_type}.{asset.input})"] = None
                continue
            mine = AssetFile(graph_digest=one.digest, name=asset.name, file=file, sha256=digest(file))
            if not found.setdefault(mine.key, mine).is_same(mine):
                mine = mine.model_copy(update={"job": one.job})
                found[mine.key] = mine
    if missing:
        raise AssetsMissing(
            "input files are missing; put them beside the workflow or name their folder with --inputs:",
            list(missing),
        )
    return tuple(found.values())


def is_uploaded(asset: Asset) -> bool:
    """Whether we bring the file: its output folder and addresses are the server's own affair."""
    return asset.kind == "input" and asset.folder == "input"


def _asset_file(path: str, workflow: str, inputs_dir: Path | None) -> Path | None:
    beside = None if workflow == INLINE or is_address(workflow) else Path(workflow).parent
    for folder in (beside, inputs_dir):
        if folder is not None:
            file = (folder / path).resolve()
            if file.is_relative_to(folder.resolve()) and file.is_file():
                return file
    return None


def _sha256(file: Path) -> str:
    try:
        with file.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as exc:
        raise FarmError(f"{file}: cannot be read ({exc.strerror})") from exc
