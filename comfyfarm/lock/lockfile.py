"""`comfyfarm.lock`: everything that a workflow needs, pinned by content, as text that diffs well."""

import hashlib
import json
from collections.abc import Iterable
from functools import cached_property
from typing import Annotated, Any, Final, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    StringConstraints,
    ValidationError,
    model_validator,
)

from comfyfarm.addresses import mask
from comfyfarm.errors import CatalogueError
from comfyfarm.ids import Sha256
from comfyfarm.lock.json_file import read_json
from comfyfarm.lock.paths import SafeFolder, SafePath
from comfyfarm.workflow.folders import modern

VERSION: Final = 1
_MOST_BYTES = 1 << 46  # 64 TiB: more is a slip, and planning its parts would take all memory
_REMEDY = "make one with `comfyfarm lock`"
_Source = Annotated[str, StringConstraints(min_length=1)]

LOCK_LIMIT_BYTES = 16 * 1024 * 1024


class LockedModel(BaseModel):
    """One model file, pinned to its content rather than its name. Unknown fields are kept."""

    model_config = ConfigDict(frozen=True, extra="allow")

    folder: SafeFolder
    """ComfyUI's models-folder key, such as `checkpoints`."""
    path: SafePath
    """Below that folder, with `/` between folders."""
    sha256: Sha256
    size: int = Field(ge=0, le=_MOST_BYTES)
    """In bytes."""
    sources: tuple[_Source, ...] = ()
    """Addresses of any scheme, or paths, best first. Any of them yields these bytes or is refused."""
    header: JsonValue = None
    """Summary of the header of a safetensors or GGUF file, once one is read."""

    @property
    def title(self) -> str:
        """`folder/path`, for people."""
        return f"{self.folder}/{self.path}"

    @property
    def modern_key(self) -> tuple[str, str]:
        """Folder by its name of today, and path: `clip` and `text_encoders` are one place."""
        return (modern(self.folder), self.path)


class LockedRepo(BaseModel):
    """A hub repository at one revision."""

    model_config = ConfigDict(frozen=True, extra="allow")

    id: str
    revision: str


class LockedPack(BaseModel):
    """A node pack at one commit."""

    model_config = ConfigDict(frozen=True, extra="allow")

    name: str
    url: str
    commit: str


class Missing(BaseModel):
    """What the workflows need and this lock cannot pin: known to be missing, which is not forgotten."""

    model_config = ConfigDict(frozen=True, extra="allow")

    kind: str
    """`model`, `pack` or `python`."""
    name: str
    reason: str
    """Why it is not pinned, for people."""


class Lock(BaseModel):
    """The pinned closure of one or more workflows. Unknown fields are kept."""

    model_config = ConfigDict(frozen=True, extra="allow")

    version: Literal[1] = VERSION
    models: tuple[LockedModel, ...] = ()
    repos: tuple[LockedRepo, ...] = ()
    packs: tuple[LockedPack, ...] = ()
    python: JsonValue = None
    """The Python environment, once one is solved."""
    comfyui: str | None = None
    """Version of ComfyUI that it was made for."""
    schema_sha256: Sha256 | None = None
    """Digest of the node classes that it was made with."""
    missing: tuple[Missing, ...] = ()
    """What is needed and not pinned, such as packs without a commit. Written when there is any."""

    @model_validator(mode="after")
    def _no_twins(self) -> "Lock":
        seen: set[tuple[str, str]] = set()
        for model in self.models:
            place = (model.folder, model.path)
            if place in seen:
                raise ValueError(f"{model.title} is listed twice")
            seen.add(place)
        return self

    @model_validator(mode="after")
    def _one_size_each(self) -> "Lock":
        sizes: dict[str, int] = {}
        for model in self.models:
            if sizes.setdefault(model.sha256, model.size) != model.size:
                raise ValueError(
                    f"{model.title} has {model.size} bytes, and {sizes[model.sha256]} under another name: "
                    "one SHA-256 is of one size"
                )
        return self

    @cached_property
    def digest(self) -> Sha256:
        """SHA-256 of the lock as it is written."""
        return hashlib.sha256(write_lock(self)).hexdigest()


def write_lock(lock: Lock) -> bytes:
    """The lock as text: keys and entries sorted, one field a line, so that a change is one line."""
    raw = lock.model_dump(mode="json")
    if raw["missing"]:
        raw["missing"] = sorted(raw["missing"], key=lambda item: (item["kind"], item["name"], item["reason"]))
    else:  # a lock of the first kind stays as it is, to the byte
        del raw["missing"]
    raw["models"] = sorted(raw["models"], key=lambda item: (item["folder"], item["path"]))
    raw["repos"] = sorted(raw["repos"], key=lambda item: (item["id"], item["revision"]))
    raw["packs"] = sorted(raw["packs"], key=lambda item: (item["name"], item["url"]))
    text = json.dumps(raw, indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False)
    return f"{text}\n".encode()


def read_lock(data: bytes, *, name: str, remedy: str = _REMEDY) -> Lock:
    """Read a lock file. `remedy`: what to do where it is something else altogether.

    Raises:
        CatalogueError: it is none, or of another version; every flaw is named with its place.
    """
    raw = read_json(data, name=name, remedy=remedy)
    if _is_workflow(raw):
        raise CatalogueError(f"{mask(name)}: is no lock (it looks like a workflow); {remedy}")
    if not isinstance(raw, dict):
        raise CatalogueError(f"{mask(name)}: is no lock; {remedy}")
    if raw.get("version") != VERSION or isinstance(raw["version"], bool):
        raise CatalogueError(
            f"{mask(name)}: version is {raw.get('version')!r:.40}, and this comfyfarm reads version "
            f"{VERSION}; make the lock again with `comfyfarm lock`, or upgrade comfyfarm"
        )
    try:
        return Lock.model_validate(raw)
    except ValidationError as exc:
        raise CatalogueError("\n".join(_flaws(exc, mask(name)))) from exc


def _is_workflow(raw: Any) -> bool:
    if not isinstance(raw, dict):
        return False
    if isinstance(raw.get("nodes"), list | dict) or isinstance(raw.get("prompt"), dict):
        return True
    return any(isinstance(node, dict) and "class_type" in node for node in raw.values())


def _flaws(exc: ValidationError, name: str) -> Iterable[str]:
    return flaws_of(exc, name, remedy="make the lock again with `comfyfarm lock`")


def flaws_of(exc: ValidationError, name: str, *, remedy: str) -> Iterable[str]:
    """What pydantic found, one line each: the file, the place in it, what, and what to do."""
    for flaw in exc.errors(include_url=False):
        place = ".".join(str(step) for step in flaw["loc"]) or "the whole"
        what = flaw["msg"].removeprefix("Value error, ")
        is_number = flaw["type"] == "string_type" and type(flaw["input"]) in {int, float}
        yield f"{name}: {place}: {what}; {'put it in quotes' if is_number else remedy}"
