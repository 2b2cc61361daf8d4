"""Whether a prompt may run: the checks, the error types and the shapes of the real server.

A node's check is a generator that asks for its ancestors' results one by one, so that a chain of any
length needs no recursion. Source: [rec: validation_*, partially_valid_prompt] of ComfyUI 0.27.
"""

from collections.abc import Callable, Container, Generator, Mapping
from typing import Any

from fake_server.comfy.inputs import convert, open_inputs, types_fit
from fake_server.comfy.places import Places
from fake_server.comfy.problems import (
    Problem,
    custom_refusal,
    missing_type,
    not_listed,
    out_of_range,
    problem,
)
from fake_server.comfy.schema import InputSpec, NodeClasses

Graph = dict[str, Any]
Visit = Generator[str, bool, bool]
CustomCheck = Callable[[Mapping[str, Any]], Mapping[str, str | bool]]
"""Given a node's inputs, says of each checked one: fine (True), refused (False), or why it is refused."""

_DEPTH_LIMIT = 979  # where Python's recursion ends the real check of a long chain
_FAULTS = (KeyError, IndexError, TypeError, ValueError, AttributeError, RuntimeError)
_LOADED_FILES: Mapping[tuple[str, str], str] = {
    ("LoadImage", "image"): "image",
    ("LoadImageMask", "image"): "image",
    ("LoadImageOutput", "image"): "image",
    ("LoadAudio", "audio"): "audio",
    ("LoadVideo", "file"): "video",
    ("LoadLatent", "latent"): "latent",
}
# Their choices are made by the user, so that the list in the schema says nothing.
_FREE_CHOICES = frozenset({("CustomCombo", "choice")})


class Rejected(Exception):
    """The whole prompt is refused: the `error` and `node_errors` of the 400 answer."""

    def __init__(self, error: Problem, node_errors: dict[str, Any] | None = None) -> None:
        super().__init__(error["type"])
        self.error = error
        self.node_errors = node_errors or {}


class Validator:
    """Checks prompts against the node classes and against the files that are there now."""

    def __init__(
        self, classes: NodeClasses, places: Places, *, custom: Mapping[str, CustomCheck] | None = None
    ) -> None:
        self._classes = classes
        self._places = places
        self._custom = dict(custom or {})

    def check(self, graph: Graph, only: Container[str] | None = None) -> tuple[list[str], dict[str, Any]]:
        """The output nodes that may run, and the errors of those that may not.

        The graph's values are converted in place, as the real server stores them. Only nodes that an
        output node reaches are looked at.

        Args:
            graph: the prompt.
            only: the `partial_execution_targets` of the request.

        Raises:
            Rejected: nothing of it can run.
        """
        outputs = self._outputs(graph, only)
        run = _Run(self._classes, self._places, self._custom, graph)
        good: list[str] = []
        refused: list[Problem] = []
        node_errors: dict[str, Any] = {}
        for output in outputs:
            if run.valid(output):
                good.append(output)
                continue
            refused += run.results[output][1]
            _collect(node_errors, run, output)
        if not good:
            details = "\n".join(f"{each['message']}: {each['details']}" for each in refused)
            kind = "prompt_outputs_failed_validation"
            raise Rejected(problem(kind, "Prompt outputs failed validation", details), node_errors)
        return good, node_errors

    def _outputs(self, graph: Graph, only: Container[str] | None) -> list[str]:
        for node_id, node in graph.items():
            title = node.get("_meta", {}).get("title")
            if "class_type" not in node:
                text = f"Node '{title or f'ID #{node_id}'}' has no class_type."
                text += " The workflow may be corrupted or a custom node is missing."
                raise Rejected(missing_type(text, node_id, class_type=None, title=title))
            class_type = node["class_type"]
            if class_type not in self._classes:
                title = title or class_type
                text = f"Node '{title}' not found. The custom node may not be installed."
                raise Rejected(missing_type(text, node_id, class_type=class_type, title=title))
        ids = [
            node_id
            for node_id, node in graph.items()
            if self._classes.is_output(node["class_type"]) and (only is None or node_id in only)
        ]
        if not ids:
            raise Rejected(problem("prompt_no_outputs", "Prompt has no outputs", ""))
        return ids


class _Run:
    """The results of one prompt's nodes, shared by its outputs."""

    def __init__(
        self, classes: NodeClasses, places: Places, custom: Mapping[str, CustomCheck], graph: Graph
    ) -> None:
        self.results: dict[str, tuple[bool, list[Problem]]] = {}
        self.graph = graph
        self._classes = classes
        self._places = places
        self._custom = custom
        self._path: list[str] = []

    def valid(self, output: str) -> bool:
        """Check one output node and all that it depends on."""
        try:
            return self._drive(output)
        except _FAULTS as exc:
            extra = {"exception_type": _name(exc), "traceback": []}
            text = "Exception when validating node"
            self.results[output] = (False, [problem("exception_during_validation", text, str(exc), extra)])
            return False
        finally:
            self._path.clear()

    def _drive(self, output: str) -> bool:
        if output in self.results:
            return self.results[output][0]
        stack = [self._begin(output)]
        answer: bool | None = None
        error: Exception | None = None
        while stack:
            try:
                wanted = _resume(stack[-1], answer, error)
            except StopIteration as done:
                answer, error = bool(done.value), None
                stack.pop()
                self._path.pop()
            except _FAULTS as exc:
                answer, error = None, exc
                stack.pop()
                self._path.pop()
            else:
                answer, error = self._known(wanted), None
                if answer is None and len(stack) >= _DEPTH_LIMIT:
                    error = RecursionError("maximum recursion depth exceeded")
                elif answer is None:
                    stack.append(self._begin(wanted))
        if error is not None:
            raise error
        return bool(answer)

    def _begin(self, node_id: str) -> Visit:
        self._path.append(node_id)
        return self._visit(node_id)

    def _known(self, node_id: str) -> bool | None:
        if node_id in self._path:
            self._mark_cycle(self._path[self._path.index(node_id) :])
        return self.results[node_id][0] if node_id in self.results else None

    def _mark_cycle(self, cycle: list[str]) -> None:
        names = [f"{each} ({self.graph[each]['class_type']})" for each in [*cycle, cycle[0]]]
        for each in cycle:
            extra = {"node_id": each, "cycle_nodes": list(cycle)}
            text = "Dependency cycle detected"
            self.results[each] = (False, [problem("dependency_cycle", text, " -> ".join(names), extra)])

    def _visit(self, node_id: str) -> Visit:
        node = self.graph[node_id]
        given, class_type = node["inputs"], node["class_type"]
        specs = open_inputs(self._classes.specs(class_type), given)
        errors: list[Problem] = []
        ancestors_valid = True
        for name, (category, spec) in specs.items():
            if name not in given:
                if category == "required":
                    text = "Required input is missing"
                    errors.append(problem("required_input_missing", text, name, {"input_name": name}))
            elif isinstance(given[name], list):
                found = self._link_problem(name, spec, given[name])
                if found is not None:
                    errors.append(found)
                else:
                    ancestors_valid &= yield from self._ancestor(name, spec, given[name])
            else:
                found = self._value_problem(class_type, name, spec, given)
                errors += [found] if found is not None else []
        errors += self.custom_refusals(class_type, given)
        if node_id not in self.results:
            self.results[node_id] = (ancestors_valid and not errors, errors)
        return self.results[node_id][0]

    def _link_problem(self, name: str, spec: InputSpec, link: list[Any]) -> Problem | None:
        kind, options = spec
        extra = {"input_name": name, "input_config": [kind, options]}
        if len(link) != 2:
            text = "Bad linked input, must be a length-2 list of [node_id, slot_index]"
            return problem("bad_linked_input", text, name, extra | {"received_value": link})
        received = self._classes.outputs(self.graph[link[0]]["class_type"])[link[1]]
        if types_fit(received, kind):
            return None
        details = f"{name}, received_type({received}) mismatch input_type({kind})"
        extra |= {"received_type": received, "linked_node": link}
        return problem("return_type_mismatch", "Return type mismatch between linked nodes", details, extra)

    def _ancestor(self, name: str, spec: InputSpec, link: list[Any]) -> Generator[str, bool, bool]:
        try:
            return (yield link[0])
        except _FAULTS as exc:
            extra = {
                "input_name": name,
                "input_config": list(spec),
                "exception_message": str(exc),
                "exception_type": _name(exc),
                "traceback": [],
                "linked_node": link,
            }
            text = "Exception when validating inner node"
            found = problem("exception_during_inner_validation", text, str(exc), extra)
            self.results[link[0]] = (False, [found])
            return False

    def _value_problem(
        self, class_type: str, name: str, spec: InputSpec, given: dict[str, Any]
    ) -> Problem | None:
        kind, options = spec
        raw = given[name]
        extra = {"input_name": name, "input_config": [kind, options], "received_value": raw}
        try:
            value = given[name] = convert(raw, kind)
        except (TypeError, ValueError, OverflowError) as exc:
            text = f"Failed to convert an input value to a {kind} value"
            extra |= {"exception_message": str(exc)}
            return problem("invalid_input_type", text, f"{name}, {raw}, {exc}", extra)
        if (class_type, name) in _LOADED_FILES.keys() | _FREE_CHOICES or class_type in self._custom:
            return None
        extra["received_value"] = value
        return out_of_range(name, value, options, extra) or not_listed(name, value, spec, extra)

    def custom_refusals(self, class_type: str, given: Mapping[str, Any]) -> list[Problem]:
        verdicts = dict(self._custom[class_type](given)) if class_type in self._custom else {}
        for (loader, name), word in _LOADED_FILES.items():
            value = given.get(name)
            if (
                loader == class_type
                and isinstance(value, str)
                and not self._places.input_file(value).exists()
            ):
                verdicts[name] = f"Invalid {word} file: {value}"
        return [custom_refusal(name, verdict) for name, verdict in verdicts.items() if verdict is not True]


def _resume(visit: Visit, answer: bool | None, error: Exception | None) -> str:
    if error is not None:
        return visit.throw(error)
    return next(visit) if answer is None else visit.send(answer)


def _collect(node_errors: dict[str, Any], run: _Run, output: str) -> None:
    for node_id, (valid, reasons) in run.results.items():
        if valid or not reasons:
            continue
        entry = node_errors.setdefault(
            node_id,
            {"errors": reasons, "dependent_outputs": [], "class_type": run.graph[node_id]["class_type"]},
        )
        entry["dependent_outputs"].append(output)


def _name(exc: Exception) -> str:
    return type(exc).__qualname__
