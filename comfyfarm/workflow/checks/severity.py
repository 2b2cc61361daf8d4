"""How bad a finding is for its graph: what no output needs is ignored, and outputs may be skipped.

Source: `validate_prompt` in ComfyUI's execution.py: each output is judged for itself, and one good is enough.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

from comfyfarm.ids import NodeId
from comfyfarm.workflow.checks.liveness import Edges, View
from comfyfarm.workflow.checks.walk import find_cycles, reachable
from comfyfarm.workflow.findings import Finding, Severity, warning

_OF_THE_WHOLE = frozenset({"unknown_class", "class_type", "nul_character"})
"""Errors that stop the whole prompt, wherever they are."""
_OURS = frozenset({"slot_negative", "nul_character"})
"""Errors that ComfyUI itself does not see."""
_BROKEN_LINKS = frozenset({"dangling_link", "ambiguous_list"})
_NAMED = 10  # nodes in one message


def weighed(findings: Iterable[Finding], view: View, *, all_outputs: bool) -> tuple[Finding, ...]:
    """The findings with the severity that they have for this graph.

    An error where nothing that ComfyUI runs needs the node is a warning. So are the errors of an
    output that ComfyUI would skip while it runs the others, unless `all_outputs` have to be there.
    """
    found = [_weighed(finding, view.alive) for finding in findings]
    faulty = {f.node for f in found if f.severity is Severity.ERROR and f.code not in _OURS}
    if all_outputs or len(view.outputs) < 2 or not faulty or _stops_all(found):
        return tuple(found)
    spoilt = _users(faulty, view.edges)
    skipped = [output for output in view.outputs if output in spoilt]
    if not skipped or len(skipped) == len(view.outputs):
        return tuple(found)
    eased = [_eased(f) if f.node in faulty and f.code not in _OURS else f for f in found]
    return (*eased, _partial(skipped, faulty, view))


def unused(view: View, findings: Iterable[Finding]) -> Iterator[Finding]:
    """One warning for all nodes that no output needs and of which nothing else is said.

    None while there are errors: what is wrong may be what cuts those nodes off.
    """
    findings = tuple(findings)
    if any(f.severity is Severity.ERROR or f.code in _BROKEN_LINKS for f in findings):
        return
    told = {finding.node for finding in findings if finding.severity is Severity.WARNING}
    if any(finding.code == "dead_cycle" for finding in findings):
        told.update(chain.from_iterable(find_cycles(view.edges)))
    idle = [node for node in view.edges if node not in view.alive and node not in told]
    if idle:
        names = ", ".join(f"{node} ({view.by_id[node].class_type:.40})" for node in idle[:_NAMED])
        more = f" and {len(idle) - _NAMED} more" if len(idle) > _NAMED else ""
        message = f"no output needs these nodes, so ComfyUI ignores them: {names}{more}"
        yield warning("dead_node", message, "connect them to an output, or take them out", node=idle[0])


def dead(finding: Finding) -> Finding:
    """The same as a warning, for a node that no output needs: ComfyUI accepts it there."""
    code = "dead_cycle" if finding.code == "cycle" else "dead_node"
    message = f"{finding.message} (no output needs this node, so ComfyUI ignores it)"
    return warning(code, message, finding.remedy, node=finding.node, field=finding.field)


def _weighed(finding: Finding, alive: frozenset[NodeId]) -> Finding:
    if finding.severity is not Severity.ERROR or finding.node is None or finding.code in _OF_THE_WHOLE:
        return finding
    return finding if finding.node in alive else dead(finding)


def _stops_all(findings: Iterable[Finding]) -> bool:
    return any(
        f.severity is Severity.ERROR and (f.node is None or f.code in _OF_THE_WHOLE - _OURS) for f in findings
    )


def _users(nodes: Iterable[NodeId | None], edges: Edges) -> frozenset[NodeId]:
    """These nodes and all that need them."""
    users: dict[NodeId, list[NodeId]] = {node: [] for node in edges}
    for node, sources in edges.items():
        for source in sources:
            if source in users:
                users[source].append(node)
    return reachable(users, [node for node in nodes if node is not None])


def _eased(finding: Finding) -> Finding:
    if finding.severity is not Severity.ERROR:
        return finding
    return finding.model_copy(update={"severity": Severity.WARNING})


def _partial(skipped: Sequence[NodeId], faulty: Iterable[NodeId | None], view: View) -> Finding:
    names = ", ".join(f"{node} ({view.by_id[node].class_type})" for node in skipped[:_NAMED])
    more = f" and {len(skipped) - _NAMED} more" if len(skipped) > _NAMED else ""
    wrong = ", ".join(sorted((str(node) for node in faulty), key=lambda item: (len(item), item))[:_NAMED])
    message = (
        f"ComfyUI would accept it, skip {len(skipped)} of {len(view.outputs)} outputs without a word, "
        f"{names}{more}, and run the others"
    )
    return warning("partial", message, f"correct what is said of node {wrong}", node=skipped[0])
