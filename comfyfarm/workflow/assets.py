"""Input files of a workflow (pictures, masks, sound, video, meshes), by the schema's upload flags."""

import re
from collections.abc import Iterator, Mapping
from typing import Literal

from pydantic import BaseModel, ConfigDict

from comfyfarm.ids import NodeId
from comfyfarm.workflow.folders import NO_FILE, is_input_file
from comfyfarm.workflow.graph import Node, Workflow
from comfyfarm.workflow.schema import NodeSchema

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

    @property
    def escapes(self) -> bool:
        """Whether the path leaves the folder that it is looked for in. ComfyUI refuses such."""
        parts = self.path.split("/")
        return self.kind == "input" and (".." in parts or parts[0] == "" or parts[0].endswith(":"))


def find_assets(workflow: Workflow, schema: NodeSchema) -> tuple[Asset, ...]:
    """The input files that the workflow names, in the order of its nodes."""
    return tuple(asset for node in workflow.nodes for asset in _assets_of(node, schema))


def place_assets(workflow: Workflow, uploaded: Mapping[tuple[NodeId, str], str]) -> Workflow:
    """The workflow with uploaded files in place; `uploaded` says the server's name by node and input."""
    if not uploaded:
        return workflow
    graph = workflow.to_api()
    for (node, name), given in uploaded.items():
        graph[node]["inputs"][name] = given
    return Workflow.from_api(graph, name=workflow.name)


def _assets_of(node: Node, schema: NodeSchema) -> Iterator[Asset]:
    for name, value in node.literals:
        spec = schema.input(node.class_type, name)
        uploads = spec is not None and spec.upload is not None
        if not isinstance(value, str) or not (uploads or is_input_file(node.class_type, name)):
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
        )


def split_annotation(name: str, *, default: str = "input") -> tuple[str, Literal["input", "output", "temp"]]:
    """The path and the folder in `a.png [output]`.

    Source: `annotated_filepath` in ComfyUI's folder_paths.py.
    """
    match = _ANNOTATED.match(name)
    folder = match["folder"] if match else default
    path = match["name"] if match else name
    plain = path if _URL.match(path) else path.replace("\\", "/")
    if folder == "output":
        return plain, "output"
    return plain, "temp" if folder == "temp" else "input"
