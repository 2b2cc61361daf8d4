"""What node classes take and give, as a ComfyUI server says it in `/object_info`.

Combos come in two shapes, a list of options or `"COMBO"` with options; both are read. Inputs that
grow or depend on others (`a.b`) are there for given values only: see `NodeSchema.expanded`.
"""

import json
import logging
from collections.abc import Iterable, Mapping
from copy import copy
from functools import cache, lru_cache
from importlib import resources
from typing import Any, Final

from comfyfarm.ids import Sha256
from comfyfarm.workflow.bare_classes import (
    PLACES,
    is_mapped,
    probed_places,
    read_places,
    without_files,
    without_known_files,
)
from comfyfarm.workflow.canonical import digest_of
from comfyfarm.workflow.findings import Refused, error
from comfyfarm.workflow.folders import FolderMap
from comfyfarm.workflow.input_spec import AUTOGROW, InputSpec, make_specs, type_name
from comfyfarm.workflow.node import unwrap

logger = logging.getLogger(__name__)

CUSTOM: Final = "custom_nodes."
"""Begins the module of a class that is not ComfyUI's own; the folder's name follows."""
_MOST_NAMED = 10


class NodeSchema:
    """The node classes of one server, or of the snapshot that is shipped."""

    def __init__(self, classes: Mapping[str, Any], *, name: str, live: bool) -> None:
        """Takes over `classes`, which has been checked; use the class methods."""
        self._classes = classes
        # Filled when they are asked for; copies under other names share them.
        self._digests: dict[str, Sha256] = {}
        self._specs: dict[str, dict[str, InputSpec]] = {}
        self._fixed: dict[str, Mapping[str, InputSpec] | None] = {}
        self._outputs: dict[str, tuple[str, ...]] = {}
        self.name = name
        """Where it comes from, for messages."""
        self.live = live
        """Whether it is a running server's, whose lists of files are true at this moment."""
        self.folders = FolderMap.shipped()
        """Which inputs name models of which folder."""
        self.embeddings: tuple[str, ...] | None = None
        """The files in the server's folder of embeddings; None when nobody asked it."""

    @classmethod
    def shipped(cls) -> "NodeSchema":
        """The snapshot of a ComfyUI 0.27 without custom nodes and without files."""
        return _shipped()

    @classmethod
    def from_object_info(
        cls, data: bytes | Mapping[str, Any], *, name: str, live: bool = False
    ) -> "NodeSchema":
        """The schema in a server's answer to `/object_info`, or in a saved one.

        `live`: its lists of files are those of the server that will render, now.

        Raises:
            Refused: a `WorkflowError`, when it is no such answer.
        """
        try:
            found = copy(_read(data) if isinstance(data, bytes) else _schema_of(data))
        except (ValueError, RecursionError) as exc:
            remedy = "save the answer of a server's /object_info"
            raise Refused(
                name, [error("bad_schema", f"not what /object_info answers: {exc}", remedy)]
            ) from exc
        found.name, found.live = name, live
        return found

    def with_folders(self, folders: FolderMap, *, embeddings: Iterable[str] | None = None) -> "NodeSchema":
        """The same classes, with another map of what their inputs name.

        `embeddings`: the files that the server has, by `/models/embeddings`; None leaves what is known.
        """
        twin = copy(self)
        twin.folders = folders
        if embeddings is not None:
            twin.embeddings = tuple(embeddings)
        return twin

    def __copy__(self) -> "NodeSchema":
        twin = object.__new__(NodeSchema)
        twin.__dict__.update(self.__dict__)
        return twin

    def __getstate__(self) -> dict[str, Any]:
        """Without what is made on demand: read-only mappings inside it cannot be pickled."""
        return {**self.__dict__, "_specs": {}, "_fixed": {}}

    @property
    def sha256(self) -> Sha256:
        """Digest of the classes, which is that of a lock. Files that the server has do not count."""
        if "classes" not in self._digests:
            self._digests["classes"] = digest_of(self._bare())
        return self._digests["classes"]

    @property
    def offers_sha256(self) -> Sha256:
        """Digest of the classes with what loaders offer that the shipped map does not know.

        Servers of one such digest take the same values, but for files of folders that are known.
        """
        if "offers" not in self._digests:
            kept = {name: without_known_files(name, raw) for name, raw in self._classes.items()}
            self._digests["offers"] = digest_of(kept)
        return self._digests["offers"]

    def to_saved(self) -> dict[str, Any]:
        """The classes as `from_object_info` reads them: without files, with what a probe found.

        The schema that is read of it has the same `sha256`, and places models as this one does.
        """
        places = probed_places(self._classes, self.folders)
        return self._bare() | ({PLACES: places} if places else {})

    def _bare(self) -> dict[str, Any]:
        return {name: without_files(name, raw) for name, raw in self._classes.items()}

    def knows(self, class_type: str) -> bool:
        """Whether the class is here."""
        return class_type in self._classes

    def inputs(self, class_type: str) -> Mapping[str, InputSpec]:
        """The inputs of a class, hidden ones excepted; empty when the class is not known.

        In the editor's order: required before optional, each as `input_order` says.
        """
        if class_type not in self._specs:
            raw = self._classes.get(class_type, {})
            self._specs[class_type] = make_specs(raw.get("input"), order=raw.get("input_order"))
        return self._specs[class_type]

    def expanded(self, class_type: str, values: Mapping[str, Any]) -> Mapping[str, InputSpec]:
        """The inputs of a class with the parts that they have for these values, under dotted names.

        `values`: what the node has by name, as in an API graph (links as `Link` or raw lists). In the
        editor's widget order: the parts of the chosen option stand directly behind their combo. An
        autogrow group is no input itself: its parts are, all that it may have, the first `min` required.
        To read `widgets_values`, whose combos are not known beforehand, walk over `inputs` and put
        `InputSpec.active_parts` of each value behind its spec.

        Source: `get_finalized_class_inputs` in ComfyUI's comfy_api/latest/_io.py.
        """
        if class_type not in self._fixed:
            specs = self.inputs(class_type)
            self._fixed[class_type] = None if _depends(specs.values()) else _expanded(specs, {})
        fixed = self._fixed[class_type]
        return _expanded(self.inputs(class_type), values) if fixed is None else fixed

    def input(self, class_type: str, name: str) -> InputSpec | None:
        """One input; None when the class or the input is not known."""
        return self.inputs(class_type).get(name)

    def outputs(self, class_type: str) -> tuple[str, ...]:
        """The types of the outputs, in order; empty when the class is not known."""
        if class_type not in self._outputs:
            raw = self._classes.get(class_type, {}).get("output") or ()
            self._outputs[class_type] = tuple(type_name(item) for item in raw)
        return self._outputs[class_type]

    def title(self, class_type: str) -> str:
        """The name that the editor shows for a class; the class itself when it has none."""
        shown = self._classes.get(class_type, {}).get("display_name")
        return shown if isinstance(shown, str) and shown else class_type

    def output_choices(self, class_type: str, slot: int) -> tuple[Any, ...] | None:
        """The options that stand in place of an output's type, as older nodes have it; None for a type."""
        raw = self._classes.get(class_type, {}).get("output") or ()
        return tuple(raw[slot]) if slot < len(raw) and isinstance(raw[slot], list) else None

    def is_output_node(self, class_type: str) -> bool:
        """Whether ComfyUI runs a node of this class for its own sake."""
        return bool(self._classes.get(class_type, {}).get("output_node"))

    def is_core(self, class_type: str) -> bool:
        """Whether the class is ComfyUI's own, neither a pack's nor a paid service's."""
        module = str(self._classes.get(class_type, {}).get("python_module", ""))
        return module == "nodes" or module.startswith("comfy_extras.")

    def module(self, class_type: str) -> str:
        """The Python module that has the class, such as `custom_nodes.rgthree-comfy`; empty when not said."""
        return str(self._classes.get(class_type, {}).get("python_module") or "")

    def needs_account(self, class_type: str) -> bool:
        """Whether the class calls a paid service of ComfyUI's makers, or asks for the login to them."""
        raw = self._classes.get(class_type, {})
        hidden = raw["input"].get("hidden") if raw else None
        return (
            raw.get("api_node") is True
            or self.module(class_type).partition(".")[0] == "comfy_api_nodes"
            or str(raw.get("category", "")).partition("/")[0] == "api node"
            or (isinstance(hidden, Mapping) and "auth_token_comfy_org" in hidden)
        )

    def offered(self, class_type: str, name: str) -> tuple[str, ...] | None:
        """What a combo offers, as text; None when the input is no combo or not known."""
        spec = self.input(class_type, name)
        if spec is None or spec.options is None:
            return None
        return tuple(option for option in spec.options if isinstance(option, str))


def names_a_file(class_type: str, name: str, spec: InputSpec, *, folders: FolderMap | None = None) -> bool:
    """Whether the input names files of the server: models by the folder map, or uploads.

    `folders`: the map of the schema that is asked; the shipped one by default.
    """
    return spec.upload is not None or is_mapped(class_type, name, folders or FolderMap.shipped())


@cache
def _shipped() -> NodeSchema:
    data = resources.files("comfyfarm.workflow").joinpath("object_info.json").read_bytes()
    return NodeSchema(json.loads(data), name="the shipped schema (ComfyUI 0.27)", live=False)


@lru_cache(maxsize=2)
def _read(data: bytes) -> NodeSchema:
    """Read once what every server of a farm answers alike: some 15 MB, and 0.1 s."""
    # Not strict: custom nodes have infinite limits, and servers write `Infinity`.
    return _schema_of(json.loads(data))


def _schema_of(tree: Any) -> NodeSchema:
    """The schema of a server's answer, or of what `to_saved` gave."""
    places = tree.get(PLACES) if isinstance(tree, Mapping) else None
    if places is None or _is_class(places):
        return NodeSchema(_checked(tree), name="", live=False)
    classes = {name: item for name, item in tree.items() if name != PLACES}
    folders = FolderMap.shipped().with_inputs(read_places(places))
    return NodeSchema(_checked(classes), name="", live=False).with_folders(folders)


def _checked(classes: Any) -> Mapping[str, Any]:
    """The classes that say what they take. One that does not, of a pack, must not cost all the others."""
    if not isinstance(classes, Mapping):
        raise ValueError("no node classes")
    odd = [name for name, item in classes.items() if not _is_class(item)]
    if not odd:
        return classes
    if len(odd) == len(classes):
        raise ValueError("no node classes")
    named = ", ".join(str(name)[:80] for name in odd[:_MOST_NAMED])
    more = f" and {len(odd) - _MOST_NAMED} more" if len(odd) > _MOST_NAMED else ""
    logger.warning("node classes without a list of inputs are left out of the schema: %s%s", named, more)
    return {name: item for name, item in classes.items() if _is_class(item)}


def _is_class(raw: Any) -> bool:
    return isinstance(raw, Mapping) and isinstance(raw.get("input"), Mapping)


def _depends(specs: Iterable[InputSpec]) -> bool:
    """Whether the inputs that there are depend on values; groups that grow have all of theirs always."""
    return any(
        spec.is_dynamic and (spec.type != AUTOGROW or any(part.is_dynamic for part in spec.parts.get("", ())))
        for spec in specs
    )


def _expanded(specs: Mapping[str, InputSpec], values: Mapping[str, Any]) -> dict[str, InputSpec]:
    found: dict[str, InputSpec] = {}
    ahead = [*specs.values()][::-1]
    while ahead:
        spec = ahead.pop()
        if spec.type != AUTOGROW:
            found[spec.name] = spec
        if spec.is_dynamic:
            parts = spec.active_parts(unwrap(values.get(spec.name)), is_given=spec.name in values)
            ahead.extend(reversed(parts))
    return found
