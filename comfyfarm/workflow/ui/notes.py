"""What the converter finds: one function for each code, so that all words stand in one place."""

from comfyfarm.ids import NodeId
from comfyfarm.workflow.findings import Finding, error, info, warning
from comfyfarm.workflow.shown import counted, shown


def bad_node(what: str) -> Finding:
    """An entry of `nodes` that is none."""
    message = f"an entry of the node list has no usable id or type ({shown(what)}) and is left out"
    return warning("bad_ui_node", message, "open the file in the editor and save it again")


def duplicate_id(node: str, fresh: str) -> Finding:
    """Two nodes with one id."""
    message = f"two nodes have the id {shown(node)}; the second is kept as {fresh}, links go to the first"
    remedy = "open the file in the editor, check the links of both nodes, and save it again"
    return error("duplicate_node_id", message, remedy, node=NodeId(node))


def missing_subgraph(node: str, name: str) -> Finding:
    """An instance without its definition."""
    message = f"the subgraph {shown(name)} is not defined in the file"
    return error(
        "missing_subgraph", message, "export the workflow again with its subgraph", node=NodeId(node)
    )


def unused_subgraph(name: str) -> Finding:
    """A definition without an instance."""
    message = f"nothing in the file uses the subgraph {shown(name)}; it is left out"
    return info("unused_subgraph", message, "nothing needs to be done")


def missing_group(node: str, name: str) -> Finding:
    """A legacy group node without its definition."""
    message = f"the group node {shown(name)} is not defined in the file"
    remedy = "open the file where the group node is known, and convert the node to a subgraph"
    return error("missing_group_node", message, remedy, node=NodeId(node))


def subgraph_cycle(node: str, name: str) -> Finding:
    """A definition inside itself."""
    message = f"the subgraph {shown(name)} contains itself"
    return error("subgraph_cycle", message, "take the inner instance out", node=NodeId(node))


def too_deep(node: str, limit: int) -> Finding:
    """Nesting beyond the bound."""
    message = f"subgraphs are nested more than {limit} deep"
    return error("subgraph_too_deep", message, "unpack some of the subgraphs", node=NodeId(node))


def too_large(node: str, limit: int) -> Finding:
    """More nodes than the bound, all instances counted."""
    message = f"the subgraphs expand to more than {limit:,} nodes"
    return error("subgraph_too_large", message, "use fewer instances of the subgraphs", node=NodeId(node))


def dangling(node: str, field: str, link: str) -> Finding:
    """An input whose link leads nowhere."""
    message = f"the input names link {shown(link)}, whose other end is not in the file; the link is dropped"
    remedy = "connect the input again, or save the file from a current editor"
    return warning("dangling_ui_link", message, remedy, node=NodeId(node), field=field)


def dangling_rows(count: int, where: str) -> Finding:
    """Rows of a link table to nodes that are gone."""
    place = f"of subgraph {shown(where)} " if where else ""
    rows, verb, drop = counted(count, "row"), *(("names", "it is") if count == 1 else ("name", "they are"))
    message = f"{rows} of the link table {place}{verb} nodes that are not in the file; {drop} dropped"
    return warning("dangling_ui_link", message, "save the file again from a current editor")


def link_cycle(node: str, field: str) -> Finding:
    """Reroutes or bypassed nodes that lead back to themselves."""
    message = "the link runs in a circle through nodes that only pass it on; it is dropped"
    return warning("ui_link_cycle", message, "connect the input again", node=NodeId(node), field=field)


def unresolved_get(node: str, name: object) -> Finding:
    """A GetNode without a SetNode of that name."""
    message = f"no SetNode has the name {shown(name)}, so what this node gives is not known"
    return warning("unresolved_get_node", message, "connect the input directly", node=NodeId(node))


def use_everywhere(node: str, kind: str) -> Finding:
    """Links that only exist in a pack's script."""
    message = f"{shown(kind)} makes links when the editor queues, and they are not in the file"
    remedy = "turn them into real links in the editor, or export the workflow in API format"
    return warning("use_everywhere", message, remedy, node=NodeId(node))


def unknown_class(node: str, kind: str, *, is_named: bool) -> Finding:
    """A class that the schema does not have."""
    how = "its values have the names of its inputs" if is_named else "its values stand under widgets_values"
    message = f"the node class {shown(kind)} is not in the schema; the node is kept, {how}"
    remedy = "give the schema of a server that has the node pack (--schema-from)"
    return warning("unknown_class_kept", message, remedy, node=NodeId(node))


def host_vs_inner(node: str, field: str, *, host: object, inner: object) -> Finding:
    """A promoted value on which editors disagree."""
    message = (
        f"the subgraph node has {shown(host)} and the node inside has {shown(inner)}: "
        "editors before 1.58 run the inner one, later ones that of the subgraph node"
    )
    remedy = (
        "open the file in the editor, set the value that is meant, and save it; "
        "comfyfarm convert --editor 1.45|1.58 writes the graph with one of them"
    )
    return warning("host_vs_inner", message, remedy, node=NodeId(node), field=field)


def extra_values(node: str, values: object) -> Finding:
    """More values than widgets."""
    message = f"the node has values that no input of its class takes: {shown(values)}"
    remedy = "give the schema of the ComfyUI that the file was made with"
    return info("extra_widget_values", message, remedy, node=NodeId(node), field="widgets_values")


def dynamic_prompt(node: str, field: str) -> Finding:
    """A choice that the editor makes at each run."""
    message = "the editor chooses one of {a|b} each time it queues; here the text stays as it is"
    return warning(
        "dynamic_prompt", message, "write the one text that is meant", node=NodeId(node), field=field
    )


def frontend_token(node: str, field: str, token: str) -> Finding:
    """A token that the editor replaces."""
    message = f"the editor replaces {shown(token)} when it queues; here it stays as it is"
    return info("frontend_token", message, "write the name that is meant", node=NodeId(node), field=field)


def misplaced_values(node: str, kind: str) -> Finding:
    """Values that cannot be what their inputs take."""
    message = (
        f"the file's values do not fit the inputs of {shown(kind)} in this schema, so they may stand "
        "under the wrong names, as in an editor of that age"
    )
    remedy = "give the schema of the ComfyUI that the file was made with"
    return warning("misplaced_values", message, remedy, node=NodeId(node), field="widgets_values")


def dropped_input(node: str, name: str) -> Finding:
    """A link to an input that the chosen option does not have."""
    message = "in this schema the chosen option has no such input, so the link is dropped, as in the editor"
    remedy = "give the schema of the ComfyUI that the file was made with"
    return warning("dropped_input", message, remedy, node=NodeId(node), field=name)
