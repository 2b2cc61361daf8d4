"""What a shard must know of its batch: how a job's graph is made, and what its provenance says."""

import asyncio
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from comfyfarm.comfy.client import ComfyClient
from comfyfarm.farm.prepare import AssetFile, Prepared, is_uploaded
from comfyfarm.ids import NodeId
from comfyfarm.ledger.records import AttemptRecord, JobRecord
from comfyfarm.outputs.provenance import make_provenance
from comfyfarm.workflow.assets import find_assets, place_assets
from comfyfarm.workflow.graph import Workflow
from comfyfarm.workflow.overrides import apply_overrides
from comfyfarm.workflow.prefix import expected_outputs, with_output_prefix
from comfyfarm.workflow.reading.reader import read_workflow
from comfyfarm.workflow.schema import NodeSchema


class Batchwork:
    """A prepared batch at work. Uploads an input file once to each server."""

    def __init__(self, prepared: Prepared, schemas: Mapping[str, NodeSchema]) -> None:
        """`schemas`: of each server, by its address: they may know different nodes."""
        self._prepared, self._schemas = prepared, dict(schemas)
        self._assets = {one.key: one for one in prepared.assets}
        self._uploads: dict[tuple[str, str, str], asyncio.Task[str]] = {}
        self._graph = lru_cache(maxsize=16)(self._read)

    def add_server(self, url: str, schema: NodeSchema) -> None:
        """A server that was away at first, and its node schema."""
        self._schemas[url] = schema

    @property
    def batch(self) -> str:
        """The batch's name."""
        return self._prepared.batch

    def _read(self, digest: str) -> Workflow:
        return read_workflow(self._prepared.graphs[digest].encode(), name=f"workflow {digest[:8]}")

    async def graph_for(
        self, job: JobRecord, client: ComfyClient
    ) -> tuple[Mapping[str, Any], tuple[NodeId, ...]]:
        """The graph as it is sent, and the nodes that must have an output at the end.

        Overrides are applied, the job's own prefix is set, its input files are on the server.
        """
        schema = self._schemas[client.url]
        graph = apply_overrides(self._graph(job.graph_digest), job.overrides, schema=schema)
        names = {
            (asset.node, asset.input): await self._uploaded(self.asset(job, asset.name), client)
            for asset in find_assets(graph, schema)
            if is_uploaded(asset)
        }
        placed = place_assets(graph, names)
        return with_output_prefix(placed, schema, job.id).to_api(), expected_outputs(placed, schema)

    def asset(self, job: JobRecord, name: str) -> AssetFile:
        """The input file of this name: the job's own, else that of its graph."""
        return self._assets.get((job.id, name)) or self._assets[job.graph_digest, name]

    async def _uploaded(self, asset: AssetFile, client: ComfyClient) -> str:
        key = (client.url, asset.sha256, asset.file.name)
        if key not in self._uploads:
            upload = client.upload(asset.file, name=asset.file.name, subfolder=asset.sha256)
            self._uploads[key] = asyncio.create_task(upload)
        try:
            return await asyncio.shield(self._uploads[key])
        except BaseException:
            self._uploads.pop(key, None)  # the next job tries again
            raise

    def forget_uploads(self, url: str) -> None:
        """A server that was restarted may have lost its input folder: the next job uploads again."""
        for key in [key for key in self._uploads if key[0] == url]:
            del self._uploads[key]

    def provenance(self, job: JobRecord, attempts: Sequence[AttemptRecord]) -> bytes:
        """The record that goes beside a job's outputs."""
        return make_provenance(
            job, attempts, models=self._prepared.models, lock_digest=self._prepared.lock_digest
        )
