"""One text for one JSON value, whatever the order of its keys: what digests are made of."""

import hashlib
import json
from typing import Any

from comfyfarm.ids import Sha256


def canonical_json(value: Any) -> str:
    """The value as JSON with sorted keys, no spaces, ASCII only."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=True)


def digest_of(value: Any) -> Sha256:
    """SHA-256 of the canonical text: equal for values that differ only in the order of keys."""
    return hashlib.sha256(canonical_json(value).encode("ascii")).hexdigest()
