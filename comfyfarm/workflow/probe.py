"""Which inputs name models of which folder, told from what a running server offers.

Every combo that lists all files of a folder names files of it. Folders of the same files cannot be told
apart: then all of them are kept, and the shipped table or the input's name decides which comes first.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from comfyfarm.workflow.folders import FolderMap
from comfyfarm.workflow.names import slashed

_NOT_MODELS = frozenset({"custom_nodes", "input", "output", "temp"})


def probe(object_info: Mapping[str, Any], listings: Mapping[str, Sequence[str]]) -> FolderMap:
    """The shipped map, with what the server shows of its own inputs put in.

    `object_info` is the answer to `/object_info`; `listings` the answers to `/models/{folder}` by each
    folder of `/models`. Empty folders tell nothing.
    """
    files = {
        key: frozenset(slashed(name) for name in names)
        for key, names in listings.items()
        if names and key not in _NOT_MODELS
    }
    found: dict[str, dict[str, tuple[str, ...]]] = {}
    for class_type, raw in object_info.items():
        for name, options in _combos(raw):
            folders = _folders(options, files)
            if folders:
                found.setdefault(class_type, {})[name] = folders
    return FolderMap.shipped().with_inputs(found)


def _folders(options: frozenset[str], files: Mapping[str, frozenset[str]]) -> tuple[str, ...]:
    """The folders that are offered in full. Of two where one holds the other's files, the fuller one."""
    offered = {key: names for key, names in files.items() if names <= options}
    return tuple(
        key for key, names in offered.items() if not any(names < fuller for fuller in offered.values())
    )


def _combos(raw: Any) -> Iterator[tuple[str, frozenset[str]]]:
    kinds = raw.get("input") if isinstance(raw, Mapping) else None
    if not isinstance(kinds, Mapping):
        return
    for kind in ("required", "optional"):
        inputs = kinds.get(kind)
        for name, spec in inputs.items() if isinstance(inputs, Mapping) else ():
            options = _options(spec)
            if options:
                yield name, frozenset(slashed(item) for item in options if isinstance(item, str))


def _options(spec: Any) -> Sequence[Any]:
    if not isinstance(spec, list) or not spec:
        return ()
    if isinstance(spec[0], list):
        return spec[0]
    more = spec[1] if len(spec) > 1 and isinstance(spec[1], Mapping) else {}
    options = more.get("options")
    return options if isinstance(options, list) else ()
