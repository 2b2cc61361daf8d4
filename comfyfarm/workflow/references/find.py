"""Which model files a workflow needs: folder map first, then extensions, then text.

Nothing is silent: what looks like a model and cannot be placed is `unclassified`.
"""

from collections.abc import Iterable

from comfyfarm.workflow.file_node import FileNode, file_node
from comfyfarm.workflow.graph import Workflow
from comfyfarm.workflow.references.finder import Finder
from comfyfarm.workflow.references.findings import reference_findings as reference_findings
from comfyfarm.workflow.references.reference import Kind as Kind
from comfyfarm.workflow.references.reference import Reference as Reference
from comfyfarm.workflow.references.reference import References as References
from comfyfarm.workflow.references.reference import Unclassified as Unclassified
from comfyfarm.workflow.schema import NodeSchema


def find_references(nodes: Workflow | Iterable[FileNode], schema: NodeSchema) -> References:
    """Every model that the nodes name, and what looks like one. Inactive nodes' are marked so."""
    listed = [file_node(node) for node in nodes.nodes] if isinstance(nodes, Workflow) else list(nodes)
    finder = Finder(listed, schema)
    for node in listed:
        finder.look_at(node)
    return References(references=tuple(finder.references.values()), unclassified=tuple(finder.unclassified))
