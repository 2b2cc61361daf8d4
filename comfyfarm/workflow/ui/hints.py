"""What a file says about where its models and nodes come from. It can be stale; see `file_node`."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from comfyfarm.workflow.file_node import ModelHint, PackHint
from comfyfarm.workflow.ui.plain import listed

_SHA256 = re.compile(r"[0-9a-fA-F]{64}")
_VERSION = re.compile(r"v(?=\d)")
_LONGEST = 2000  # characters of a name or address


def model_hints(raw: Any) -> tuple[ModelHint, ...]:
    """The entries of a `models` list."""
    return tuple(
        _model(item) for item in listed(raw) if isinstance(item, Mapping) and _text(item, "name") is not None
    )


def matching(hints: Mapping[str, ModelHint], values: Iterable[Any]) -> tuple[ModelHint, ...]:
    """Those hints of the whole file that a node with these values means."""
    texts = dict.fromkeys(value for value in values if isinstance(value, str))
    return tuple(hints[text] for text in texts if text in hints)


def pack_hint(properties: Mapping[str, Any]) -> PackHint | None:
    """What `properties` says about the pack; None when it says nothing."""
    version = _text(properties, "ver")
    hint = PackHint(
        cnr_id=_text(properties, "cnr_id"),
        aux_id=_text(properties, "aux_id"),
        ver=_VERSION.sub("", version, count=1) if version and _VERSION.match(version) else version,
    )
    return hint if hint != PackHint() else None


def _model(raw: Mapping[str, Any]) -> ModelHint:
    digest = _text(raw, "hash") or ""
    kind = _text(raw, "hash_type") or "sha256"
    is_sha256 = kind.lower().replace("-", "") == "sha256" and _SHA256.fullmatch(digest)
    return ModelHint(
        name=_text(raw, "name") or "",
        url=_text(raw, "url"),
        directory=_text(raw, "directory"),
        sha256=digest.lower() if is_sha256 else None,
    )


def _text(raw: Mapping[str, Any], key: str) -> str | None:
    value = raw.get(key)
    return value if isinstance(value, str) and 0 < len(value) <= _LONGEST else None
