"""Input files of a workflow (pictures, masks, sound, video, meshes), by the schema's upload flags."""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Literal, NamedTuple, TypeAlias

from pydantic import BaseModel, ConfigDict

from comfyfarm.ids import NodeId
from comfyfarm.workflow.asset_input import AssetInput, AssetRole
from comfyfarm.workflow.file_node import WIDGETS, FileNode
from comfyfarm.workflow.findings import Finding, error, warning
from comfyfarm.workflow.folders import NO_FILE, FolderMap
from comfyfarm.workflow.graph import Node, Workflow
from comfyfarm.workflow.names import slashed
from comfyfarm.workflow.node import Link, Value, is_textless, unwrap
from comfyfarm.workflow.schema import NodeSchema
from comfyfarm.workflow.shown import shown

_ANNOTATED = re.compile(r"^(?P<name>.+?) ?\[(?P<folder>input|output|temp)\]$", re.DOTALL)
Folder: TypeAlias = Literal["input", "output", "temp"]

_WEB = re.compile(r"https?://", re.IGNORECASE)
_ABSOLUTE = re.compile(r"[a-z]:|/|~|[a-z]+://", re.IGNORECASE)
_FILE_LIKE = re.compile(r"\.\w{1,10}\s*(?:\[\w+\])?\W?$|https?://", re.IGNORECASE)
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
            message, remedy = _of_address(asset)
            yield warning("url_asset", message, remedy, node=asset.node, field=asset.input)
        elif asset.folder == "temp" or asset.path.split("/")[0] == "clipspace":
            message = f"{name} is a file of one session of the editor: another server does not have it"
            remedy = "save the picture under a name of its own and load that"
            yield warning("temporary_file", message, remedy, node=asset.node, field=asset.input)


def _of_address(asset: Asset) -> tuple[str, str]:
    name = shown(asset.name)
    given = FolderMap.shipped().asset_inputs(asset.class_type).get(asset.input)
    if given is None or given.role is AssetRole.FILE:
        message = f"{name} is an address: ComfyUI itself takes files only"
        return message, "download it and name the file, unless the server fetches addresses"
    message = f"{name} is fetched when the node runs, as it is then"
    return message, "load a file of your own instead, or see that the server may fetch it"


def place_assets(workflow: Workflow, uploaded: Mapping[tuple[NodeId, str], str]) -> Workflow:
    """The workflow with uploaded files in place; `uploaded` says the server's name by node and input."""
    if not uploaded:
        return workflow
    graph = workflow.to_api()
    for (node, name), given in uploaded.items():
        known = FolderMap.shipped().asset_inputs(graph[node]["class_type"]).get(name)
        is_path = known is not None and known.role is AssetRole.PATH
        graph[node]["inputs"][name] = f"input/{given}" if is_path else given
    return Workflow.from_api(graph, name=workflow.name)


def _assets_of(node: Node | FileNode, schema: NodeSchema) -> Iterator[Asset]:
    listed = schema.folders.asset_inputs(node.class_type)
    named = [*_named(node, listed)]
    specs = schema.expanded(node.class_type, node.inputs) if named else {}
    for name, value in named:
        spec, given = specs.get(name), listed.get(name)
        if spec is not None and spec.upload is not None:
            places = _places(value, AssetRole.FILE, default=spec.upload_folder)
        elif given is not None:
            places = _places(value, given.role)
        else:
            continue
        if value in NO_FILE or value in schema.folders.sentinels(node.class_type, name):
            continue
        for place in places:
            yield Asset(
                node=node.id,
                class_type=node.class_type,
                input=name,
                active=not isinstance(node, FileNode) or node.active,
                **place._asdict(),
            )


def _named(node: Node | FileNode, listed: Mapping[str, AssetInput]) -> Iterator[tuple[str, str]]:
    """The node's texts by input. A UI file has those of an unknown class in a list without names."""
    yield from ((name, value) for name, value in node.inputs.items() if isinstance(value, str))
    bare = node.inputs.get(WIDGETS) if listed else None
    if bare is None or isinstance(bare, Link):
        return
    widgets = unwrap(bare)
    taken: set[int] = set()
    for name, given in listed.items():
        if name in node.inputs:
            continue
        if isinstance(widgets, Mapping):
            value = widgets.get(name)
            if isinstance(value, str):
                yield name, value
        elif isinstance(widgets, tuple):
            places = (at for at in given.places if at < len(widgets) and at not in taken)
            place = next((at for at in places if _fits(widgets[at], given.role)), None)
            if place is not None:
                taken.add(place)
                yield name, str(widgets[place])


def _fits(value: Value, role: AssetRole) -> bool:
    """Whether the value of a list may be the input's: the list may be of another version's node."""
    if not isinstance(value, str):
        return False
    if role is AssetRole.URL:
        return _WEB.search(value) is not None
    is_elsewhere = _ABSOLUTE.match(value) is not None and not _WEB.match(value)
    return _FILE_LIKE.search(value) is not None and not is_elsewhere


class _Place(NamedTuple):
    """Where one file of a value lies."""

    name: str
    path: str
    folder: Folder
    kind: Literal["input", "url"] = "input"


def _places(value: str, role: AssetRole, *, default: str = "input") -> Iterator[_Place]:
    if role is AssetRole.URL:
        lines = (line.strip() for line in value.splitlines())
        yield from (_Place(line, line, "input", "url") for line in lines if _WEB.match(line))
    elif role is AssetRole.PATH:
        yield from _by_path(value)
    else:
        path, folder = split_annotation(value, default=default)
        yield _Place(value, path, folder, "url" if _URL.match(value) else "input")


def _by_path(value: str) -> Iterator[_Place]:
    """The file of a path from where the server was started. Other paths are the server's own affair."""
    text = value.strip().strip('"')
    if _WEB.match(text):
        yield _Place(text, text, "input", "url")
        return
    path = slashed(text).removeprefix("./").removeprefix("ComfyUI/")
    if not path or path.endswith("/") or _ABSOLUTE.match(path) or ".." in path.split("/"):
        return
    head, _, rest = path.partition("/")
    if rest and head == "output":
        yield _Place(value, rest, "output")
    elif rest and head == "temp":
        yield _Place(value, rest, "temp")
    else:
        yield _Place(value, rest if rest and head == "input" else path, "input")


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
