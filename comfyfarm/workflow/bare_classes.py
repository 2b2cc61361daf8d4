"""Node classes without the files that their server happens to have: what a digest and a saved schema hold."""

from collections.abc import Mapping
from typing import Any

from comfyfarm.workflow.folders import FolderMap
from comfyfarm.workflow.input_spec import upload_of
from comfyfarm.workflow.model_files import is_model_file

PLACES = "comfyfarm_folders"
"""Key of a saved schema that is no class: the models folders by class and input, as a probe found them."""


def is_mapped(class_type: str, name: str, folders: FolderMap) -> bool:
    """Whether the map knows the input as one that names files."""
    return bool(folders.folders(class_type, name)) or folders.is_asset_input(class_type, name)


def without_known_files(class_type: str, raw: Mapping[str, Any]) -> dict[str, Any]:
    """A class without the files of inputs that the shipped map knows, or that take uploads."""
    folders = FolderMap.shipped()
    kinds = {kind: dict(inputs) for kind, inputs in _kinds(raw).items()}
    for inputs in kinds.values():
        for name, spec in inputs.items():
            if is_mapped(class_type, name, folders) or upload_of(spec) is not None:
                inputs[name] = _emptied(spec, folders.sentinels(class_type, name))
    return {**raw, "input": kinds}


def without_files(class_type: str, raw: Mapping[str, Any]) -> dict[str, Any]:
    """A class without any files: not those of loaders that only their server knows either."""
    bare = without_known_files(class_type, raw)
    return {**bare, **{key: _without_models(bare[key]) for key in ("input", "output") if key in bare}}


def _without_models(raw: Any) -> Any:
    """What describes inputs or outputs, without the options and defaults that are model files."""
    if isinstance(raw, Mapping):
        return {
            key: _without_models(item) for key, item in raw.items() if key != "default" or not _is_file(item)
        }
    if isinstance(raw, list):
        return [_without_models(item) for item in raw if not _is_file(item)]
    return raw


def _is_file(item: Any) -> bool:
    return isinstance(item, str) and is_model_file(item)


def _emptied(raw: Any, keep: tuple[str, ...]) -> Any:
    if not isinstance(raw, list) or not raw:
        return raw
    head, options = raw[0], dict(raw[1]) if len(raw) > 1 and isinstance(raw[1], Mapping) else {}
    if "options" in options:
        options["options"] = [item for item in options["options"] or () if item in keep]
    if isinstance(head, list):
        head = [item for item in head if item in keep]
    options.pop("default", None)
    return [head, options]


def probed_places(classes: Mapping[str, Any], folders: FolderMap) -> dict[str, dict[str, list[str]]]:
    """The folders by class and input where a map has others than the shipped one."""
    shipped = FolderMap.shipped()
    found: dict[str, dict[str, list[str]]] = {}
    if folders is shipped:
        return found
    for class_type, raw in classes.items():
        for name in (name for inputs in _kinds(raw).values() for name in inputs):
            here = folders.folders(class_type, name)
            if here and here != shipped.folders(class_type, name):
                found.setdefault(class_type, {})[name] = list(here)
    return found


def read_places(raw: Any) -> dict[str, dict[str, tuple[str, ...]]]:
    """The folders by class and input of a saved schema.

    Raises:
        ValueError: they are none.
    """
    try:
        places = {
            str(kind): {name: tuple(folders) for name, folders in inputs.items()}
            for kind, inputs in raw.items()
        }
    except (AttributeError, TypeError) as exc:
        raise ValueError(f"{PLACES} is no list of folders by class and input") from exc
    if not all(isinstance(key, str) for inputs in places.values() for one in inputs.values() for key in one):
        raise ValueError(f"{PLACES} has a folder that is no text")
    return places


def _kinds(raw: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    return {kind: inputs for kind, inputs in raw["input"].items() if isinstance(inputs, Mapping)}
