"""Where a graph saves: a prefix for each job, and which nodes must have saved in the end.

A prefix of its own keeps a cached node from naming another job's picture, and two servers from one
name (`design.md` 5.3).
"""

import posixpath
import re
from collections.abc import Iterator

from comfyfarm.ids import NodeId
from comfyfarm.workflow.findings import Finding, warning
from comfyfarm.workflow.graph import Workflow
from comfyfarm.workflow.names import slashed
from comfyfarm.workflow.node import Link
from comfyfarm.workflow.schema import NodeSchema
from comfyfarm.workflow.shown import shown

_PREFIX = "filename_prefix"
_FOLDER = "folder_name"
_JOB_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_DRIVE = re.compile(r"[A-Za-z]:/")
_OTHER_INPUT = {
    "SaveImageDataSetToFolder": _FOLDER,
    "SaveImageTextDataSetToFolder": _FOLDER,
    "SaveLoRA": "prefix",
}
"""Where the name goes elsewhere: the first two make that folder only, so `/` in a prefix fails."""
_SILENT = frozenset(
    {
        "CLIPSave",
        "CheckpointSave",
        "ImageOnlyCheckpointSave",
        "LoraSave",
        "LossGraphNode",
        "ModelSave",
        "SaveImageDataSetToFolder",
        "SaveImageTextDataSetToFolder",
        "SaveLoRA",
        "VAESave",
    }
)
"""They write models or data sets and tell the history nothing."""


def with_output_prefix(workflow: Workflow, schema: NodeSchema, prefix: str) -> Workflow:
    """The workflow saving under `<prefix>/<what it said>`.

    Set on every `filename_prefix` that the schema knows, the default added where the file leaves
    it out. A prefix that comes over a link cannot be changed and stays.
    """
    graph = workflow.to_api()
    for node, name, old in _prefixes(workflow, schema):
        graph[node]["inputs"][name] = f"{prefix}/{_inside(old)}"
    return Workflow.from_api(graph, name=workflow.name)


def prefix_findings(workflow: Workflow, schema: NodeSchema) -> Iterator[Finding]:
    """Prefixes that lead out of the output folder. ComfyUI takes them, and fails only when it saves."""
    for node, name, old in _prefixes(workflow, schema):
        if _escapes(old, is_folder=name == _FOLDER):
            message = f"{shown(old)} leads out of the output folder, so the node fails when it saves"
            remedy = "name a place inside it; `render` saves inside a folder of the job whatever stands here"
            yield warning("path_escape", message, remedy, node=node, field=name)


def expected_outputs(workflow: Workflow, schema: NodeSchema) -> tuple[NodeId, ...]:
    """The nodes that must have an entry in the history when all went well.

    Only ComfyUI's own nodes that save under a prefix and say so: what others tell is not known.
    """
    return tuple(node.id for node in workflow.nodes if _tells(node.class_type, schema))


def _prefixes(workflow: Workflow, schema: NodeSchema) -> Iterator[tuple[NodeId, str, str]]:
    """Node, input and old value of all that can be set."""
    for node in workflow.nodes:
        name = _OTHER_INPUT.get(node.class_type, _PREFIX)
        spec = schema.input(node.class_type, name)
        if spec is not None:
            old = node.inputs.get(name, spec.default)
            if not isinstance(old, Link):
                yield node.id, name, "" if old is None else str(old)


def _escapes(old: str, *, is_folder: bool) -> bool:
    """Whether it would lie outside; absolute paths may lie inside, which nobody can know here.

    Source: `get_save_image_path` in ComfyUI's folder_paths.py, which looks at the folder alone.
    """
    path = posixpath.normpath(slashed(old))
    return path.startswith(("../", "/")) or _DRIVE.match(path) is not None or (is_folder and path == "..")


def _inside(old: str) -> str:
    """The old prefix without what would lead out of the job's own folder, and without an older job's.

    A picture that a farm made carries the graph as it was sent, with that job's id in front.
    """
    parts = slashed(old).split("/")
    folders = [part for part in parts[:-1] if part not in {"", ".", ".."}]
    while folders and _JOB_ID.fullmatch(folders[0]):
        del folders[0]
    last = parts[-1] if parts[-1] not in {"", ".", ".."} else "ComfyUI"
    return "/".join([*folders, last])


def _tells(class_type: str, schema: NodeSchema) -> bool:
    saves = schema.is_output_node(class_type) and schema.input(class_type, _PREFIX) is not None
    return saves and schema.is_core(class_type) and class_type not in _SILENT
