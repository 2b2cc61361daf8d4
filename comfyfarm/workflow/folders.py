"""Which input of which class names a file of which models folder.

`folders.json` (ComfyUI's own nodes) was found by asking a server, not by reading code: every models
folder held one uniquely named empty file, and each combo told which of them it offers.
`pack_folders.json` says the same of common node packs, read from their public sources, and
`implicit_models.json` what some classes load without being told. How to add a row: docs/workflows.md.
"""

import json
import re
from collections.abc import Iterable, Mapping
from functools import cache
from importlib import resources
from typing import Any

from comfyfarm.workflow.asset_input import AssetInput
from comfyfarm.workflow.editor_nodes import Virtual, virtual_of
from comfyfarm.workflow.model_input import ClassLoads, CountedInputs, ModelInput, Role

NO_FILE = frozenset({"", "None", "none", "[None]"})
"""Values that stand for no file at all, whatever the loader."""
_NO_MODEL = NO_FILE | {"Baked VAE", ".none", ".use_ckpt_vae", "Select the LoRA to add to the text"}
"""The same of models: packs' words that no file is called by, whatever the class is called."""

_WRAPPED = re.compile(r"(?:DisTorch2?)?MultiGPU$")
_NOTE = re.compile(r"Note(?:s|Node)?(?: \(\w+\))?$")
_MOST_CLASSES = 20_000  # kept at a time; files may hold names without end
_DIGITS = re.compile(r"\d+")
_SENTINEL = re.compile(
    r"(?:none|no|off|default|disabled?|auto(?:matic)?|undefined|null|choose|random|same|original|"
    r"(?:use|select|manual|from|auto:)[ _-].*|put .+ into .+|\(?use same\)?|baked[ _-]?vae)",
    re.IGNORECASE,
)


class FolderMap:
    """Which inputs name models. A value: nothing changes it, `with_inputs` makes another."""

    def __init__(self, core: Mapping[str, Any], packs: Mapping[str, Any]) -> None:
        """From the JSON of the two shipped tables; use `shipped`."""
        self._core, self._packs = core, packs
        self._probed: Mapping[str, Mapping[str, tuple[str, ...]]] = {}
        self._classes: dict[str, ClassLoads] = {}
        self._implicit: dict[str, str | None] = packs["implicit"]
        self._model_free = frozenset(packs["preprocessors_without_model"])
        self._displays = frozenset(packs["displays"])
        self._tags = frozenset(packs["lora_tags"])
        listed = {**core["input_files"], **packs["input_files"]}
        self._assets = {
            kind: {name: AssetInput.read(text) for name, text in inputs.items()}
            for kind, inputs in listed.items()
        }

    @staticmethod
    def shipped() -> "FolderMap":
        """The map that is shipped: ComfyUI's own classes and those of common packs."""
        return _shipped()

    def with_inputs(self, probed: Mapping[str, Mapping[str, tuple[str, ...]]]) -> "FolderMap":
        """A map that knows more: folders by class and input, as a running server shows them."""
        made = FolderMap(self._core, self._packs)
        made._probed = {name: {**self._probed.get(name, {}), **inputs} for name, inputs in probed.items()}
        made._probed = {**self._probed, **made._probed}
        return made

    def of(self, class_type: str) -> ClassLoads:
        """All that is known of a class."""
        found = self._classes.get(class_type)
        if found is None:
            if len(self._classes) >= _MOST_CLASSES:
                self._classes.clear()
            found = self._classes[class_type] = self._look_up(class_type)
        return found

    def input(self, class_type: str, name: str) -> ModelInput | None:
        """What the input names; None when it names no model, or is not known."""
        inputs = self.of(class_type).inputs
        if not inputs:
            return None
        found = inputs.get(name)
        return found if found is not None else inputs.get(_DIGITS.sub("#", name))

    def folders(self, class_type: str, name: str) -> tuple[str, ...]:
        """The models-folder keys whose files the input offers, the modern key first; () if unknown."""
        found = self.input(class_type, name)
        return found.folders if found is not None else ()

    def sentinels(self, class_type: str, name: str) -> tuple[str, ...]:
        """Values of the input that name no file, such as VAELoader's `pixel_space`."""
        tables = (self._core["sentinels"], self._packs["sentinels"])
        return tuple(value for table in tables for value in table.get(class_type, {}).get(name, ()))

    def is_sentinel(self, class_type: str, name: str, value: str) -> bool:
        """Whether a value of the input names no file. A pack's word for that has no fixed form."""
        if value in _NO_MODEL or value in self.sentinels(class_type, name):
            return True
        return class_type not in self._core["models"] and _SENTINEL.fullmatch(value.strip("._ ")) is not None

    def is_asset_input(self, class_type: str, name: str) -> bool:
        """Whether the input names a picture, sound, video or mesh, without an upload flag."""
        return name in self.asset_inputs(class_type)

    def asset_inputs(self, class_type: str) -> Mapping[str, AssetInput]:
        """The inputs of a class that name pictures and such without an upload flag, by their names."""
        return self._assets.get(class_type) or {}

    def knows(self, class_type: str) -> bool:
        """Whether anything is known of what the class loads."""
        known = self.of(class_type)
        if known.inputs or known.shows or known.is_implicit:
            return True
        return class_type in self._model_free or class_type in self._assets

    def runs_model(self, preprocessor: str) -> bool:
        """Whether the preprocessor of that name, chosen by value, loads a model."""
        return preprocessor not in self._model_free

    def reads_tags(self, class_type: str) -> bool:
        """Whether `<lora:…>` in a text of the class loads a LoRA."""
        return class_type in self._tags

    def by_prefix(self, folder: str, name: str, *, class_type: str) -> tuple[str, str]:
        """The folder and the path in it, where the first part of the name chooses the folder."""
        choices = self._packs["prefixes"].get(folder)
        if choices is None:
            return folder, name
        head, _, rest = name.partition("/")
        if rest and head in choices:
            return choices[head], rest
        return (folder if class_type in self._packs["prefix_free"] else choices["bbox"]), name

    def _look_up(self, class_type: str) -> ClassLoads:
        base = _WRAPPED.sub("", class_type)
        inputs = self._read(class_type, base)
        texts = self._packs["texts"].get(class_type, {})
        named = base.endswith(("Preprocessor", "Preprocessor_Provider_for_SEGS //Inspire"))
        is_implicit = base in self._implicit or (named and base not in self._model_free and not inputs)
        return ClassLoads(
            inputs=inputs,
            texts={name: tuple(at) if isinstance(at, list) else (at,) for name, at in texts.items()},
            counted=CountedInputs.read(self._packs["counted_inputs"].get(class_type, {})),
            is_implicit=is_implicit,
            implicit_folder=self._implicit.get(base) if is_implicit else None,
            shows=class_type in self._displays
            or virtual_of(class_type) is Virtual.NOTE
            or _NOTE.search(class_type) is not None,
        )

    def _read(self, class_type: str, base: str) -> Mapping[str, ModelInput]:
        found: dict[str, ModelInput] = {}
        for kind in dict.fromkeys((base, class_type)):
            for name, folders in self._core["models"].get(kind, {}).items():
                role = Role.DIRECTORY if folders[0] in self._core["directories"] else Role.FILE
                found[name] = ModelInput(role, tuple(folders))
            for name, text in self._packs["files"].get(kind, {}).items():
                found[name] = ModelInput.read(text, self._core["legacy"])
        for name, probed in self._probed.get(class_type, {}).items():
            if probed and (name not in found or found[name].role is Role.FILE):
                found[name] = _preferred(found.get(name), name, _moderns(probed))
        return found


def modern(folder: str) -> str:
    """The folder key of today: `clip` is `text_encoders`, `unet` is `diffusion_models`."""
    found: str = _core()["legacy"].get(folder, folder)
    return found


def places_on_disk(folder: str) -> tuple[tuple[str, str], ...]:
    """Where else files of a key that packs register may be listed: folder, and what stands before a path."""
    return _places().get(folder, ())


def implicit_names(class_type: str) -> tuple[str, ...]:
    """What a class loads by itself, as its source says it: for people to read, never a reference."""
    return tuple(_implicit_models().get(class_type, ()))


def approx_vae(name: str) -> tuple[str, ...]:
    """The files in `vae_approx` that a VAELoader's value stands for, without extension; () if none."""
    found = _core()["vae_approx"]
    if name in found["pairs"]:
        return (f"{name}_encoder", f"{name}_decoder")
    stem = name.rpartition(".")[0]
    return (stem,) if stem in found["single"] else ()


def _preferred(known: ModelInput | None, name: str, probed: tuple[str, ...]) -> ModelInput:
    """The probed folders: those of the shipped table first, then the one whose key the name resembles."""
    first = known.folders if known is not None else ()
    place = known.place if known is not None else None

    def rank(folder: str) -> tuple[int, bool, bool]:
        at = first.index(folder) if folder in first else len(first)
        return at, modern(folder) != folder, folder.rstrip("s") not in name

    return ModelInput(Role.FILE, tuple(sorted(probed, key=rank)), place)


def _moderns(folders: Iterable[str]) -> tuple[str, ...]:
    listed = tuple(folders)
    return tuple(dict.fromkeys((*(modern(key) for key in listed), *listed)))


@cache
def _core() -> Mapping[str, Any]:
    return _data("folders.json")


@cache
def _places() -> Mapping[str, tuple[tuple[str, str], ...]]:
    return {
        key: ((folder, f"{head}/"),)
        for folder, parts in _packs()["prefixes"].items()
        for head, key in parts.items()
    }


@cache
def _packs() -> Mapping[str, Any]:
    return _data("pack_folders.json")


@cache
def _implicit_models() -> Mapping[str, list[str]]:
    return _data("implicit_models.json")


@cache
def _shipped() -> FolderMap:
    return FolderMap(_core(), _packs())


def _data(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(resources.files("comfyfarm.workflow").joinpath(name).read_bytes())
    return found
