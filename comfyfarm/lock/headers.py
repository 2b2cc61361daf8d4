"""Headers of model files for a lock: read from the first bytes, wherever the file lies."""

from collections.abc import Callable, Iterable

from pydantic import JsonValue

from comfyfarm.lock.gguf import gguf_summary
from comfyfarm.lock.lockfile import Lock, LockedModel
from comfyfarm.lock.safetensors import BadHeader, ReadAt, summary
from comfyfarm.workflow.findings import Finding, warning

OpenSource = Callable[[str], ReadAt | None]
"""Gives a way to read stretches of the file at an address or path; None where that cannot be done."""

_READERS: dict[str, Callable[[ReadAt, int], dict[str, JsonValue]]] = {
    ".safetensors": summary,
    ".sft": summary,
    ".gguf": gguf_summary,
}


def header_of(path: str, read_at: ReadAt, size_bytes: int) -> dict[str, JsonValue] | None:
    """The summary of a model file's header; None for a kind of file that has none, such as `.ckpt`.

    Raises:
        BadHeader: the file is not what its name says, or cut off.
        OSError: it cannot be read.
    """
    reader = _READERS.get("." + path.rpartition(".")[2].lower())
    return reader(read_at, size_bytes) if reader is not None else None


def with_headers(lock: Lock, open_source: OpenSource) -> tuple[Lock, tuple[Finding, ...]]:
    """The lock with the headers that it has not yet, and a warning for each file that has a bad one."""
    found: list[Finding] = []
    models = tuple(_with_header(model, open_source, found) for model in lock.models)
    return lock.model_copy(update={"models": models}), tuple(found)


def _with_header(model: LockedModel, open_source: OpenSource, found: list[Finding]) -> LockedModel:
    if model.header is not None or "." + model.path.rpartition(".")[2].lower() not in _READERS:
        return model
    for read_at in _opened(model.sources, open_source):
        try:
            header = header_of(model.path, read_at, model.size)
        except OSError:
            continue
        except BadHeader as exc:
            found.append(bad_header(model, str(exc)))
            return model
        return model.model_copy(update={"header": header})
    return model


def _opened(sources: Iterable[str], open_source: OpenSource) -> Iterable[ReadAt]:
    return (read_at for source in sources if (read_at := open_source(source)) is not None)


def bad_header(model: LockedModel, reason: str) -> Finding:
    """What is wrong with a model file's header."""
    return warning(
        "corrupt_header",
        f"{model.title} is no sound file of its kind: {reason}",
        "get the file anew and check its hash; ComfyUI will not be able to load it",
    )
