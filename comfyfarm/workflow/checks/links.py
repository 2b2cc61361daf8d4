"""What is wrong with the links of a graph: dangling, out of range, of another shape, in a circle."""

import re
from collections.abc import Iterator

from comfyfarm.workflow.checks.liveness import View
from comfyfarm.workflow.checks.walk import find_cycles
from comfyfarm.workflow.findings import Finding, error, warning
from comfyfarm.workflow.node import Link, Node, Value
from comfyfarm.workflow.schema import NodeSchema
from comfyfarm.workflow.shown import shown

_NODE_ID = re.compile(r"-?\d+(:-?\d+)*")
_SHAPE = 'write a link as ["node id", slot number] and a list as {"__value__": [...]}'


def wrong_link(
    node: Node, name: str, link: Link, view: View, schema: NodeSchema, *, is_known: bool
) -> Iterator[Finding]:
    """What is wrong with a link. `is_known`: the class has this input, so ComfyUI looks at it."""
    source = view.by_id.get(link.node)
    if source is None:
        yield _dangling(node, name, link, schema, is_known=is_known)
    elif link.slot < 0:
        message = f"takes output {link.slot} of node {link.node}: ComfyUI would count from the end"
        yield error(
            "slot_negative", message, "name the output by its number, from 0", node=node.id, field=name
        )
    elif schema.knows(source.class_type) and link.slot >= len(schema.outputs(source.class_type)):
        has = _outputs(len(schema.outputs(source.class_type)))
        tell = error if is_known or not schema.knows(node.class_type) else warning
        yield tell(
            "slot_out_of_range",
            f"takes output {link.slot} of node {link.node} ({source.class_type}), which has {has}",
            "connect it to an output that exists",
            node=node.id,
            field=name,
        )


def wrong_list(
    node: Node, name: str, value: tuple[Value, ...], view: View, schema: NodeSchema, *, is_known: bool
) -> Iterator[Finding]:
    """A list in an input that the class has must be a link; elsewhere it may have been meant as one."""
    starts_like_link = len(value) > 1 and isinstance(value[0], str) and value[0] in view.by_id
    if not is_known and not starts_like_link:
        return
    text = shown(value, most=80)
    if is_known or not schema.knows(node.class_type):
        message = f"{text} is neither a link nor a value that ComfyUI takes"
        yield error("bad_link_shape", message, _SHAPE, node=node.id, field=name)
    else:
        message = f"{text} may be a list or a broken link; {node.class_type} has no such input"
        yield warning("ambiguous_list", message, _SHAPE, node=node.id, field=name)


def cycle_findings(view: View) -> Iterator[Finding]:
    """Each cycle once, in the order in which data flows."""
    for cycle in find_cycles(view.edges):
        # The walk goes from node to source; people read the way that data flows.
        flow = [cycle[0], *reversed(cycle[1:])]
        first = min(flow, key=lambda item: (len(item), item))
        turned = flow[flow.index(first) :] + flow[: flow.index(first)]
        way = " → ".join([*turned[:50], "…", first] if len(turned) > 50 else [*turned, first])
        remedy = "cut one of these links: a graph has to end somewhere"
        yield error("cycle", f"a cycle: {way}", remedy, node=first)


def _outputs(count: int) -> str:
    if count < 2:
        return "output 0 only" if count else "no output"
    return f"outputs 0 to {count - 1}"


def _dangling(node: Node, name: str, link: Link, schema: NodeSchema, *, is_known: bool) -> Finding:
    if not is_known and not _NODE_ID.fullmatch(link.node):
        text = shown([link.node, link.slot], most=80)
        message = f"{text} reads as a link to node {link.node:.60}, which is not in the file"
        remedy = 'write {"__value__": [...]} if the list itself is meant'
        return warning("ambiguous_list", message, remedy, node=node.id, field=name)
    # Of an input that the class does not have, ComfyUI's validation says nothing.
    tell = error if is_known or not schema.knows(node.class_type) else warning
    return tell(
        "dangling_link",
        f"{node.class_type} takes it from node {link.node}, which is not in the file",
        "connect it to a node that exists, and export again",
        node=node.id,
        field=name,
    )
