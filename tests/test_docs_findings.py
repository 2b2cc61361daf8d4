"""The list of findings in the docs is that of the code: every code, with the severities it can have."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
MAKERS = frozenset({"error", "warning", "info"})
"""The functions of `comfyfarm/workflow/findings.py`, each called like its severity."""
ROW = re.compile(r"^\| `([a-z0-9_]+)` \| ([a-z, ]+) \|", re.MULTILINE)

Codes = dict[str, set[str]]


def test_every_code_that_is_emitted_is_a_row_and_every_row_is_emitted() -> None:
    documented, emitted = _documented(), _emitted()

    assert set(emitted) - set(documented) == set(), "emitted, and not in docs/findings.md"
    assert set(documented) - set(emitted) == set(), "in docs/findings.md, and emitted nowhere"


def test_every_row_has_the_severities_that_the_code_gives() -> None:
    emitted = _emitted()

    assert {code: sorted(found) for code, found in _documented().items()} == {
        code: sorted(found) for code, found in emitted.items()
    }


def test_every_code_is_written_once_and_in_snake_case() -> None:
    rows = [match[1] for match in ROW.finditer(_text())]

    assert len(rows) == len(set(rows))
    assert all(re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)*", code) for code in _emitted())


def test_the_collector_sees_names_choices_and_constants() -> None:
    source = """
from comfyfarm.workflow.findings import error, info, warning
CODE = "by_constant"
def one(is_hard, other):
    yield error("literal", "m", "r")
    tell = error if is_hard else warning
    yield tell("by_choice", "m", "r")
def two(other):
    tell, code = (info, "left") if other else (error, "right")
    yield tell(code, "m", "r")
    yield warning(CODE, "m", "r")
    _log.warning("a log line")
"""
    found: Codes = defaultdict(set)
    _Reader(ast.parse(source), {"CODE": "by_constant"}, "text").fill(found)

    assert found == {
        "literal": {"error"},
        "by_choice": {"error", "warning"},
        "left": {"info"},
        "right": {"error"},
        "by_constant": {"warning"},
    }


def _text() -> str:
    return (ROOT / "docs" / "findings.md").read_text("utf-8")


def _documented() -> Codes:
    return {match[1]: {part.strip() for part in match[2].split(",")} for match in ROW.finditer(_text())}


@cache
def _emitted() -> Codes:
    found: Codes = defaultdict(set)
    trees = {file: ast.parse(file.read_text("utf-8")) for file in sorted((ROOT / "comfyfarm").rglob("*.py"))}
    constants = {name: text for tree in trees.values() for name, text in _constants(tree)}
    for file, tree in trees.items():
        if file != ROOT / "comfyfarm" / "workflow" / "findings.py":
            _Reader(tree, constants, str(file.relative_to(ROOT))).fill(found)
    return dict(found)


def _constants(tree: ast.Module) -> Iterator[tuple[str, str]]:
    for item in tree.body:
        targets = item.targets if isinstance(item, ast.Assign) else []
        value = item.value if isinstance(item, ast.Assign) else None
        if isinstance(value, ast.Constant) and isinstance(value.value, str):
            yield from ((target.id, value.value) for target in targets if isinstance(target, ast.Name))


class _Reader:
    """The codes of one module. What it cannot follow is a failure, not a gap."""

    def __init__(self, tree: ast.Module, constants: dict[str, str], name: str) -> None:
        self.tree, self.constants, self.name = tree, constants, name

    def fill(self, found: Codes) -> None:
        imported = {
            alias.asname or alias.name
            for item in ast.walk(self.tree)
            if isinstance(item, ast.ImportFrom) and item.module == "comfyfarm.workflow.findings"
            for alias in item.names
        }
        if not imported & MAKERS:
            return
        for function in (item for item in ast.walk(self.tree) if isinstance(item, ast.FunctionDef)):
            self._function(function, imported & MAKERS, found)
        if self.name.endswith("strict.py"):
            for code in self._held():
                found[code].add("error")

    def _function(self, function: ast.FunctionDef, makers: set[str], found: Codes) -> None:
        tells: dict[str, set[str]] = {name: {name} for name in makers}
        codes: dict[str, set[tuple[str | None, str]]] = defaultdict(set)
        for item in ast.walk(function):
            if isinstance(item, ast.Assign):
                self._assigned(item, tells, codes, makers)
        for call in ast.walk(function):
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id in tells:
                for severity, code in self._codes(call.args[0], codes):
                    found[code].update({severity} if severity else tells[call.func.id])

    def _assigned(
        self,
        item: ast.Assign,
        tells: dict[str, set[str]],
        codes: dict[str, set[tuple[str | None, str]]],
        makers: set[str],
    ) -> None:
        """`tell = error if … else warning`, `code = "a" if … else "b"`, or both as pairs."""
        target = item.targets[0]
        for value in _branches(item.value):
            if isinstance(target, ast.Name) and isinstance(value, ast.Name) and value.id in makers:
                tells.setdefault(target.id, set()).add(value.id)
            elif isinstance(target, ast.Name) and target.id == "code" and _is_text(value):
                codes["code"].add((None, ast.literal_eval(value)))
            elif isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(value.elts) == 2:
                tell, code = value.elts
                if isinstance(tell, ast.Name) and tell.id in makers and isinstance(target.elts[0], ast.Name):
                    tells.setdefault(target.elts[0].id, set()).add(tell.id)
                    codes["code"].add((tell.id, ast.literal_eval(code)))

    def _codes(
        self, argument: ast.expr, codes: dict[str, set[tuple[str | None, str]]]
    ) -> set[tuple[str | None, str]]:
        if _is_text(argument):
            return {(None, ast.literal_eval(argument))}
        if isinstance(argument, ast.Name):
            known = codes.get(argument.id) or {(None, self.constants.get(argument.id, ""))}
            if ("", "") not in known and (None, "") not in known:
                return known
        if self.name.endswith("strict.py"):  # a flaw's own code: `_held` has them all
            return set()
        raise AssertionError(f"{self.name}:{argument.lineno}: which code is {ast.unparse(argument)}?")

    def _held(self) -> Iterator[str]:
        """The codes of `_REMEDIES`, without which a flaw cannot be shown."""
        for item in ast.walk(self.tree):
            if isinstance(item, ast.Assign) and isinstance(item.value, ast.Dict):
                names = [target.id for target in item.targets if isinstance(target, ast.Name)]
                keys = item.value.keys if names == ["_REMEDIES"] else []
                yield from (ast.literal_eval(key) for key in keys if key is not None)


def _branches(value: ast.expr) -> Iterator[ast.expr]:
    if isinstance(value, ast.IfExp):
        yield from _branches(value.body)
        yield from _branches(value.orelse)
    else:
        yield value


def _is_text(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and isinstance(value.value, str)
