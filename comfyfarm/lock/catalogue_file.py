"""Catalogue files: which content stands behind which name. A lock is one too."""

import tomllib
from typing import Any

import yaml
from pydantic import TypeAdapter, ValidationError

from comfyfarm.addresses import base_name, mask
from comfyfarm.errors import CatalogueError
from comfyfarm.lock.catalogue import Catalogue, CatalogueEntry, collect
from comfyfarm.lock.json_file import read_json
from comfyfarm.lock.lockfile import LockedRepo, flaws_of

_FORM = "a catalogue lists folder, path, sha256, size and sources of each model, id and revision of each repo"
_ENTRIES = TypeAdapter(tuple[CatalogueEntry, ...])
_REPOS = TypeAdapter(tuple[LockedRepo, ...])


def catalogue_of(raw: Any, *, name: str) -> Catalogue:
    """The catalogue in a parsed document: a list, or `models` and `repos`.

    Raises:
        CatalogueError: it is none; every flaw is named with its place.
    """
    shown = mask(name)
    models, repos = (raw, []) if not isinstance(raw, dict) else (raw.get("models"), raw.get("repos") or [])
    if isinstance(raw, dict) and models is None and repos:
        models = []
    if not isinstance(models, list):
        raise CatalogueError(f"{shown}: is no list of models; {_FORM}")
    try:
        found = _ENTRIES.validate_python(models)
        return collect(found).model_copy(update={"repos": _REPOS.validate_python(repos)})
    except ValidationError as exc:
        raise CatalogueError("\n".join(flaws_of(exc, shown, remedy=_FORM))) from exc


def parse_document(data: bytes, *, name: str) -> Any:
    """What a JSON, YAML or TOML document holds; strict where it is JSON.

    The form follows the suffix of `name`; without a known one, the content.

    Raises:
        CatalogueError: it is none of them.
    """
    shown = mask(name)
    kind = base_name(name).rpartition(".")[2].lower()
    if kind == "json" or (kind not in {"toml", "yaml", "yml"} and data.lstrip()[:1] in {b"[", b"{"}):
        # `[[models]]` begins like JSON; a JSON list of lists is no catalogue.
        if kind == "json" or not data.lstrip().startswith(b"[["):
            return read_json(data, name=name, remedy=f"mend it there; {_FORM}")
        kind = "toml"
    try:
        text = data.decode("utf-8-sig")
        return tomllib.loads(text) if kind == "toml" else yaml.safe_load(text)
    except UnicodeDecodeError as exc:
        raise CatalogueError(f"{shown}: not UTF-8 at offset {exc.start}; save it as UTF-8") from exc
    except tomllib.TOMLDecodeError as exc:
        raise CatalogueError(f"{shown}: not TOML: {exc}; {_FORM}") from exc
    except (yaml.YAMLError, RecursionError, ValueError) as exc:
        raise CatalogueError(f"{shown}: not YAML: {_one_line(exc)}; {_FORM}") from exc


def _one_line(exc: Exception) -> str:
    return " ".join(str(exc).split())[:300]
