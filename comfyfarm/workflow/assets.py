"""Input files of a workflow (pictures, masks, sound, video, meshes), by the schema's upload flags."""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Literal

from pydantic import BaseModel, ConfigDict

from comfyfarm.ids import NodeId
from comfyfarm.workflow.file_node import FileNode
from comfyfarm.workflow.findings import Finding, error, warning
from comfyfarm.workflow.folders import NO_FILE
from comfyfarm.workflow.graph import Node, Workflow
from comfyfarm.workflow.names import slashed
from comfyfarm.workflow.node import is_textless
from comfyfarm.workflow.schema import NodeSchema
from comfyfarm.workflow.shown import shown

_ANNOTATED = re.compile(r"^(?P<name>.+?) ?\[(?P<folder>input|output|temp)\]$", re.DOTALL)
_URL = re.compile(r"^[a-z][a-z0-9+.-]*://", re.IGNORECASE)


class Asset(BaseModel):
    """A file that a node reads from the server's input folder."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    node: NodeId
    class_type: str
    input: str
    name: str
    """As the workflow has it, annotation included (`a.png [input]`)."""
    path: str
    """Where to look for it: the name without annotation, with `/` between folders."""
    folder: Literal["input", "output", "temp"]
    """The server's folder that the workflow means."""
    kind: Literal["input", "url"] = "input"
    active: bool = True
    """False when the node is muted, bypassed, or inside such a subgraph."""

    @property
    def escapes(self) -> bool:
        """Whether the path leaves the folder that it is looked for in. ComfyUI refuses such."""
        parts = self.path.split("/")
        return self.kind == "input" and (".." in parts or parts[0] == "" or parts[0].endswith(":"))


def find_assets(nodes: Workflow | Iterable[FileNode], schema: NodeSchema) -> tuple[Asset, ...]:
    """The input files that the nodes name, in their order: what runs, or all of a file."""
    listed: Iterable[Node | FileNode] = nodes.nodes if isinstance(nodes, Workflow) else nodes
    texted = (node for node in listed if not is_textless(node.inputs))
    return tuple(asset for node in texted for asset in _assets_of(node, schema))


def asset_findings(assets: Iterable[Asset]) -> Iterator[Finding]:
    """What is wrong with the names of input files."""
    for asset in assets:
        name = shown(asset.name)
        if asset.escapes:
            message = f"{name} leads out of the folder of inputs, which ComfyUI refuses"
            yield error("path_escape", message, "name a file inside it", node=asset.node, field=asset.input)
        elif asset.kind == "url":
            message = f"{name} is an address: ComfyUI itself takes files only"
            remedy = "download it and name the file, unless the server fetches addresses"
            yield warning("url_asset", message, remedy, node=asset.node, field=asset.input)
        elif asset.folder == "temp" or asset.path.split("/")[0] == "clipspace":
            message = f"{name} is a file of one session of the editor: another server does not have it"
            remedy = "save the picture under a name of its own and load that"
            yield warning("temporary_file", message, remedy, node=asset.node, field=asset.input)


def place_assets(workflow: Workflow, uploaded: Mapping[tuple[NodeId, str], str]) -> Workflow:
    """The workflow with uploaded files in place; `uploaded` says the server's name by node and input."""
    if not uploaded:
        return workflow
    graph = workflow.to_api()
    for (node, name), given in uploaded.items():
        graph[node]["inputs"][name] = given
    return Workflow.from_api(graph, name=workflow.name)


def _assets_of(node: Node | FileNode, schema: NodeSchema) -> Iterator[Asset]:
    named = [(name, value) for name, value in node.inputs.items() if isinstance(value, str)]
    specs = schema.expanded(node.class_type, node.inputs) if named else {}
    for name, value in named:
        spec = specs.get(name)
        uploads = spec is not None and spec.upload is not None
        if not (uploads or schema.folders.is_asset_input(node.class_type, name)):
            continue
        if value in NO_FILE:
            continue
        default = spec.upload_folder if spec is not None else "input"
        path, folder = split_annotation(value, default=default)
        yield Asset(
            node=node.id,
            class_type=node.class_type,
            input=name,
            name=value,
            path=path,
            folder=folder,
            kind="url" if _URL.match(value) else "input",
            active=not isinstance(node, FileNode) or node.active,
        )


def split_annotation(name: str, *, default: str = "input") -> tuple[str, Literal["input", "output", "temp"]]:
    """The path and the folder in `a.png [output]`.

    Source: `annotated_filepath` in ComfyUI's folder_paths.py.
    """
    match = _ANNOTATED.match(name)
    folder = match["folder"] if match else default
    path = match["name"] if match else name
    plain = path if _URL.match(path) else slashed(path)
    if folder == "output":
        return plain, "output"
    return plain, "temp" if folder == "temp" else "input"
