"""Whether a prompt may run: the answer for the whole of it, in the shapes of the real server.

Source: [rec: validation_*, partially_valid_prompt] of ComfyUI 0.27.
"""

from collections.abc import Container, Mapping
from typing import Any

from fake_server.comfy.checking import Check, CustomCheck, Graph
from fake_server.comfy.places import Places
from fake_server.comfy.problems import Problem, missing_type, problem
from fake_server.comfy.schema import NodeClasses


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
        run = Check(self._classes, self._places, self._custom, graph)
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


def _collect(node_errors: dict[str, Any], run: Check, output: str) -> None:
    for node_id, (valid, reasons) in run.results.items():
        if valid or not reasons:
            continue
        entry = node_errors.setdefault(
            node_id,
            {"errors": reasons, "dependent_outputs": [], "class_type": run.graph[node_id]["class_type"]},
        )
        entry["dependent_outputs"].append(output)
