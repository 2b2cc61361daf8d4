"""The checks of one prompt's nodes, shared by its outputs.

A node's check is a generator that asks for its ancestors' results one by one, so that a chain of any
length needs no recursion. Source: [rec: validation_*] of ComfyUI 0.27.
"""

from collections.abc import Callable, Generator, Mapping
from typing import Any

from fake_server.comfy.inputs import convert, open_inputs, types_fit
from fake_server.comfy.places import Places
from fake_server.comfy.problems import Problem, custom_refusal, not_listed, out_of_range, problem
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


class Check:
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
        errors += self._custom_refusals(class_type, given)
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

    def _custom_refusals(self, class_type: str, given: Mapping[str, Any]) -> list[Problem]:
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


def _name(exc: Exception) -> str:
    return type(exc).__qualname__
