"""Values put into a graph from outside: `node.input=value`."""

import difflib
from collections.abc import Iterable, Iterator, Mapping

from pydantic import BaseModel, ConfigDict, JsonValue

from comfyfarm.errors import OverrideError
from comfyfarm.ids import NodeId
from comfyfarm.workflow.findings import Refused
from comfyfarm.workflow.graph import Node, Workflow
from comfyfarm.workflow.schema import NodeSchema
from comfyfarm.workflow.strict import is_unicode, strict_json


class Override(BaseModel):
    """One value put into a graph: `node.input=value`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    node: NodeId
    input: str
    value: JsonValue

    def __str__(self) -> str:
        return f"{self.node}.{self.input}"


def parse_override(text: str) -> Override:
    """Read `3.seed=7`. The first dot ends the node id; the value is JSON, or else text.

    Raises:
        OverrideError: it has not this form, or its value is JSON that cannot be used.
    """
    target, equals, value = text.partition("=")
    if not equals:
        raise OverrideError(f"{text!r} has no value; write node.input=value, such as 3.seed=7")
    if not is_unicode(text):
        raise OverrideError(f"{text!a} is not valid Unicode")
    return _override(target, _value(target, value))


def read_overrides(values: Mapping[str, JsonValue]) -> tuple[Override, ...]:
    """Overrides from a mapping such as `{"3.seed": 7}`, sorted.

    Raises:
        OverrideError: a key has not the form `node.input`.
    """
    return merge_overrides((_override(target, value) for target, value in values.items()), ())


def merge_overrides(given: Iterable[Override], own: Iterable[Override]) -> tuple[Override, ...]:
    """Both together, sorted by node and input; a job's own win, and of two alike the later one."""
    merged = {(item.node, item.input): item for item in (*given, *own)}
    return tuple(merged[key] for key in sorted(merged))


def apply_overrides(
    workflow: Workflow, overrides: Iterable[Override], *, schema: NodeSchema | None = None
) -> Workflow:
    """The workflow with the values put in; a link may be replaced by a value.

    `schema`: with it, an input that the class has and the file leaves out may be set as well.

    Raises:
        OverrideError: nodes or inputs that do not exist, all of them at once, with near matches.
    """
    wanted = tuple(overrides)
    if not wanted:
        return workflow
    problems = [problem for item in wanted for problem in _problems(workflow, item, schema)]
    if problems:
        raise OverrideError("\n".join(f"{workflow.name}: {problem}" for problem in problems))
    graph = workflow.to_api()
    for item in wanted:
        graph[item.node]["inputs"][item.input] = item.value
    return Workflow.from_api(graph, name=workflow.name)


def _override(target: str, value: JsonValue) -> Override:
    node, dot, name = target.partition(".")
    if not dot or not node or not name or "\0" in target:
        raise OverrideError(f"{target!r} names no input; write node.input, such as 3.seed")
    return Override(node=NodeId(node), input=name, value=value)


def _value(target: str, text: str) -> JsonValue:
    try:
        value: JsonValue = strict_json(text.encode(), name=target)
    except Refused as exc:
        if exc.findings[0].code in {"bad_json", "non_finite"}:
            return text
        raise OverrideError(str(exc)) from exc
    return value


def _problems(workflow: Workflow, item: Override, schema: NodeSchema | None) -> Iterator[str]:
    node = workflow.get(item.node)
    if node is None:
        near = _by_title(workflow, item.node) or _near(item.node, [each.id for each in workflow.nodes])
        yield f"{item}: there is no node {item.node!r}{near}"
        return
    known = _inputs(node, schema)
    if item.input not in known:
        near = _near(item.input, known)
        yield f"{item}: node {node.id} ({node.class_type}) has no input {item.input!r}{near}"


def _inputs(node: Node, schema: NodeSchema | None) -> list[str]:
    known = dict.fromkeys(node.inputs)
    if schema is not None:
        known |= dict.fromkeys(schema.inputs(node.class_type))
    return list(known)


def _near(name: str, known: list[str]) -> str:
    """A hint; where nothing is near and the choice is small, all of it."""
    near = difflib.get_close_matches(name, known, n=3)
    if near:
        return f"; did you mean {' or '.join(near)}?"
    return f"; it has {', '.join(known)}" if 0 < len(known) <= 12 else ""


def _by_title(workflow: Workflow, wanted: str) -> str:
    """People write the title that they see: say its id."""
    names = ((node.id, (node.title.lower(), node.class_type.lower())) for node in workflow.nodes)
    found = [node for node, called in names if wanted.lower() in called]
    return f"; {wanted!r} is node {', '.join(found[:5])}" if found else ""
