"""The node classes that the server offers: the shipped schema with its file lists filled in.

Read by path from the product's data, as /object_info gives it; reading a data file is no import.
"""

import copy
import functools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fake_server.comfy.folders import ModelFolders
from fake_server.comfy.places import Places

SCHEMA_FILE = Path(__file__).parents[2] / "comfyfarm" / "workflow" / "object_info.json"
_FOLDER_MAP = Path(__file__).with_name("folders.json")
_MESHES = frozenset({".glb", ".gltf", ".obj", ".fbx", ".stl", ".usdz", ".ply", ".splat", ".spz", ".ksplat"})
_UPLOADS = ("image_upload", "audio_upload", "video_upload", "file_upload")

InputSpec = tuple[Any, dict[str, Any]]


class NodeClasses:
    """All node classes by name. File lists are looked up at each call, as the real server does."""

    def __init__(
        self, folders: ModelFolders, places: Places, *, extra: Mapping[str, dict[str, Any]] | None = None
    ) -> None:
        self._folders = folders
        self._places = places
        self._classes: dict[str, dict[str, Any]] = _shipped() | dict(extra or {})
        self._map: dict[str, dict[str, Any]] = json.loads(_FOLDER_MAP.read_bytes())

    def __contains__(self, class_type: object) -> bool:
        return class_type in self._classes  # an unhashable type is a TypeError, and HTTP 500, as there

    def __getitem__(self, class_type: str) -> dict[str, Any]:
        return self._classes[class_type]

    def object_info(self, class_type: str | None = None) -> dict[str, Any]:
        """The body of /object_info, or of /object_info/{class}: empty for an unknown class."""
        if class_type is not None:
            return {class_type: self._filled(class_type)} if class_type in self else {}
        return {name: self._filled(name) for name in self._classes}

    def outputs(self, class_type: str) -> tuple[Any, ...]:
        """The types of the class's output slots."""
        return tuple(self._classes[class_type]["output"])

    def is_output(self, class_type: str) -> bool:
        """Whether the class makes a graph runnable: it saves or shows something."""
        return bool(self._classes[class_type].get("output_node"))

    def specs(self, class_type: str) -> dict[str, dict[str, InputSpec]]:
        """The declared inputs, by category (`required`, `optional`), file lists filled in."""
        declared = self._filled(class_type)["input"]
        return {
            category: {name: _pair(spec) for name, spec in declared.get(category, {}).items()}
            for category in ("required", "optional")
        }

    def _filled(self, class_type: str) -> dict[str, Any]:
        info = self._classes[class_type]
        names = {
            name: files for name in _inputs(info) if (files := self._files(class_type, name)) is not None
        }
        if not names:
            return info
        filled = copy.deepcopy(info)
        for category in ("required", "optional"):
            for name, spec in filled["input"].get(category, {}).items():
                if name in names:
                    _fill(spec, names[name])
        return filled

    def _files(self, class_type: str, name: str) -> list[str] | None:
        entry = self._map.get(class_type, {}).get(name)
        if entry is not None and entry["folders"] != ["input"]:
            return [*self._folders.combo(entry["folders"]), *entry.get("extra", [])]
        options = _pair(_inputs(self._classes[class_type])[name])[1]
        if options.get("file_upload"):
            return _meshes(self._places.input_dir)
        if options.get("image_folder") == "output":
            return []
        if entry is not None or any(options.get(flag) for flag in _UPLOADS):
            return self._places.listing()
        return None


def is_combo(kind: object) -> bool:
    """Whether an input's type is a list of choices, in either of the two shapes."""
    return isinstance(kind, list) or kind == "COMBO"


def choices(kind: object, options: Mapping[str, Any]) -> list[Any]:
    """The choices of a combo input."""
    return kind if isinstance(kind, list) else list(options.get("options", []))


@functools.cache
def _shipped() -> dict[str, dict[str, Any]]:
    # Shared by all servers of a process, so nobody may change it: what is filled in goes into copies.
    classes: dict[str, dict[str, Any]] = json.loads(SCHEMA_FILE.read_bytes())
    return classes


def _inputs(info: Mapping[str, Any]) -> dict[str, Any]:
    declared = info["input"]
    return {**declared.get("required", {}), **declared.get("optional", {})}


def _pair(spec: Any) -> InputSpec:
    return spec[0], (spec[1] if len(spec) > 1 else {})


def _fill(spec: list[Any], names: list[str]) -> None:
    if isinstance(spec[0], list):
        spec[0] = names
    elif spec[0] == "COMBO":
        spec[1]["options"] = names


def _meshes(input_dir: Path) -> list[str]:
    found = (path for path in (input_dir / "3d").rglob("*") if path.suffix.lower() in _MESHES)
    return sorted(path.relative_to(input_dir).as_posix() for path in found)
