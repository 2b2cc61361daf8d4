"""The value of a combo against what a schema offers.

A running server's lists are true. A snapshot's are those of one version without files: a name of a file
is not looked for in them, and a text that is like none of them may be one that a newer version has.
"""

import difflib
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache

from comfyfarm.workflow.findings import Finding, error, warning
from comfyfarm.workflow.input_spec import InputSpec
from comfyfarm.workflow.node import Node, Value
from comfyfarm.workflow.schema import NodeSchema, is_file_input
from comfyfarm.workflow.shown import shown

_JUDGED_BY_THE_NODE = frozenset({"SelectModelDevice", "SelectCLIPDevice", "SelectVAEDevice"})
"""Classes that take other values than they offer. Source: `validate_inputs` in nodes_multigpu.py."""
_MANY = 1_000  # options, beyond which only those of the same first letters are compared
_MOST_COMPARED = 100_000  # options, for the wrong values of one file; it takes about a second
_FEWEST = 20  # options, that making ready for a value takes as long as
_NO_LETTERS = re.compile(r"[\W_]+")
_MODEL_FILE = re.compile(
    r"\.(?:safetensors|sft|ckpt|pth?|pt2|bin|pkl|gguf|onnx|engine|trt|patch|npz)\s*$", re.IGNORECASE
)


class Suggestions:
    """The options that the wrong values of one file are most like.

    A file may have a wrong value in each of a hundred thousand nodes: the first thousands get suggestions.
    """

    def __init__(self) -> None:
        """Those of a file of which nothing has been looked at."""
        self._left = _MOST_COMPARED
        self._known: dict[tuple[str, str, str], tuple[str, ...]] = {}

    def of(self, node: Node, spec: InputSpec, value: Value) -> tuple[str, ...]:
        """Up to three options, the best first; none when too many values were looked at before."""
        key = (node.class_type, spec.name, str(value)[:200])
        if key not in self._known:
            options = spec.options or ()
            self._left -= max(len(options), _FEWEST)
            self._known[key] = nearest(value, options) if self._left >= 0 else ()
        return self._known[key]


def choice_findings(
    node: Node, spec: InputSpec, value: Value, schema: NodeSchema, *, check_files: bool, like: Suggestions
) -> Iterator[Finding]:
    """What is wrong with the value of a combo.

    `check_files`: whether names of models have to be in the schema's lists.
    """
    options = spec.options or ()
    if value in options or _is_several_of(spec, value) or node.class_type in _JUDGED_BY_THE_NODE:
        return
    if spec.upload is not None or schema.folders.is_input_file(node.class_type, spec.name):
        if check_files and schema.live and isinstance(value, str):
            yield from _asset(node, spec, value, schema)
    elif is_file_input(node.class_type, spec.name, spec, folders=schema.folders):
        yield from _file(node, spec, value, schema, check_files=check_files, like=like)
    elif options:  # where a list is empty in a schema, the node takes anything
        yield _not_offered(node, spec, value, schema, like)


def separator_findings(node: Node, name: str, value: Value, schema: NodeSchema) -> Iterator[Finding]:
    r"""Names of model files with `\` in inputs that are in no schema, also inside of objects."""
    if isinstance(value, Mapping) and (value.get("on") is False or value.get("active") is False):
        return  # rows of a list of LoRAs that are switched off
    is_mapped = isinstance(value, str) and bool(schema.folders.folders(node.class_type, name))
    for text in texts(value):
        if "\\" in text and (is_mapped or is_model_file(text)):
            yield _separator(node, name, text)


def is_model_file(text: str) -> bool:
    """Whether the text ends as names of model files do."""
    return _MODEL_FILE.search(text) is not None


def texts(value: Value) -> Iterator[str]:
    """All texts in a value, keys included."""
    ahead: list[Value] = [value]
    while ahead:
        item = ahead.pop()
        if isinstance(item, str):
            yield item
        elif isinstance(item, tuple):
            ahead.extend(reversed(item))
        elif item is not None and not isinstance(item, bool | int | float):
            yield from item
            ahead.extend(reversed([*item.values()]))


def nearest(value: Value, options: tuple[Value, ...]) -> tuple[str, ...]:
    """Up to three options that are most like the value; first those of its name in other folders."""
    return _nearest(str(value)[:200], tuple(map(str, options)))


@lru_cache(maxsize=256)  # one wrong name is often in many nodes
def _nearest(value: str, options: tuple[str, ...]) -> tuple[str, ...]:
    text = value.casefold()
    base = _base(text)
    by_fold = {option.casefold(): option for option in options}
    moved = [option for fold, option in by_fold.items() if _base(fold) == base]
    if len(by_fold) > _MANY:
        by_fold = {fold: option for fold, option in by_fold.items() if fold[:2] == text[:2]}
    like = [by_fold[item] for item in difflib.get_close_matches(text, by_fold, n=3)]
    return tuple(dict.fromkeys([*moved, *like]))[:3]


def _base(name: str) -> str:
    return name.replace("\\", "/").rpartition("/")[2]


def _is_several_of(spec: InputSpec, value: Value) -> bool:
    if not spec.multiselect or not isinstance(value, tuple):
        return False
    return all(item in (spec.options or ()) for item in value)


def _file(
    node: Node, spec: InputSpec, value: Value, schema: NodeSchema, *, check_files: bool, like: Suggestions
) -> Iterator[Finding]:
    options = spec.options or ()
    if isinstance(value, str) and "\\" in value:
        turned = value.replace("\\", "/")
        if not (schema.live and check_files) or turned in options:
            yield _separator(node, spec.name, value)
            return
    if check_files:
        yield _not_offered(node, spec, value, schema, like)


def _asset(node: Node, spec: InputSpec, value: str, schema: NodeSchema) -> Iterator[Finding]:
    """Servers list the files at the top of their folder of inputs, and no others."""
    if value and not value.endswith("]") and "/" not in value and "\\" not in value:
        message = f"{schema.name} has no input file {shown(value)} now"
        remedy = "put it beside the workflow or into --inputs: a render uploads it"
        yield warning("missing_asset", message, remedy, node=node.id, field=spec.name)


def _separator(node: Node, name: str, value: str) -> Finding:
    return error(
        "separator",
        f"{shown(value)} has folders as Windows writes them: a server on Linux does not find it",
        f"write {shown(value.replace(chr(92), '/'))}",
        node=node.id,
        field=name,
    )


def _not_offered(node: Node, spec: InputSpec, value: Value, schema: NodeSchema, like: Suggestions) -> Finding:
    options = spec.options or ()
    near = like.of(node, spec, value)
    if isinstance(value, str) and not schema.live and not _is_slip(value, options):
        return _newer(node, spec, value, schema, near=near)
    message = f"{shown(value)} is not one of the {len(options)} values that {schema.name} offers"
    case = next((option for option in near if option.casefold() == str(value).casefold()), None)
    if case is not None and case != value:
        message, near = f"{shown(value)} differs in case from {case!r}, which {schema.name} offers", (case,)
    # A choice that a dynamic combo does not have is taken and ignored.
    tell = warning if spec.is_dynamic else error
    return tell("not_in_list", message, _choose(near), node=node.id, field=spec.name)


def _newer(node: Node, spec: InputSpec, value: str, schema: NodeSchema, *, near: tuple[str, ...]) -> Finding:
    count = len(spec.options or ())
    message = f"{shown(value)} is not one of the {count} values in {schema.name}; a newer one may have it"
    remedy = f"{_choose(near)}, or check against the server that has it (--schema-from URL)"
    return warning("schema_newer", message, remedy, node=node.id, field=spec.name)


def _choose(options: tuple[str, ...]) -> str:
    return (
        f"choose {', '.join(repr(option)[:200] for option in options)}" if options else "choose one of them"
    )


def _is_slip(value: str, options: tuple[Value, ...]) -> bool:
    """Whether it is one of the options written wrongly: another case, other separators, a typing error.

    Other digits are no slip: `wan2.7` is another thing than `wan2.6`.
    """
    if not all(isinstance(option, str) for option in options):
        return True
    return _is_like_any(value[:200], tuple(map(str, options)))


@lru_cache(maxsize=256)
def _is_like_any(value: str, options: tuple[str, ...]) -> bool:
    mine = _plain(value)
    return not mine or any(_is_like(mine, other) for other in _by_digits(options).get(_digits(mine), ()))


@lru_cache(maxsize=256)
def _by_digits(options: tuple[str, ...]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for option in map(_plain, options):
        found.setdefault(_digits(option), []).append(option)
    return found


def _is_like(mine: str, other: str) -> bool:
    """Whether one edit in five letters, two at most, makes one of the other: `eulera`, `eulr`, `euler`."""
    length = max(len(mine), len(other))
    most = min(2, length // 5)
    if abs(len(mine) - len(other)) > most:
        return False
    blocks = difflib.SequenceMatcher(None, mine, other).get_matching_blocks()
    return length - sum(block.size for block in blocks) <= most


def _plain(text: str) -> str:
    return _NO_LETTERS.sub("", text.casefold()[:200])


def _digits(text: str) -> str:
    return "".join(letter for letter in text if letter.isdigit())
