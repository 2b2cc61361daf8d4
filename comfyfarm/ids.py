"""Names for identifiers, so that one kind is never taken for another."""

import uuid
from typing import Annotated, NewType

from pydantic import StringConstraints

JobId = NewType("JobId", str)
"""A lower-case hyphenated UUID; ComfyUI's `prompt_id` and the ledger's primary key."""

NodeId = NewType("NodeId", str)
"""A node's id path as in the API graph, such as `7` or `19:3`."""

LeaseToken = NewType("LeaseToken", int)
"""Fencing token: grows with every claim of a job; writes of an older one are refused."""

Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
"""64 lower-case hexadecimal digits."""


def is_job_id(text: str) -> bool:
    """Whether ComfyUI 0.27 takes this as a prompt id: a lower-case hyphenated UUID."""
    try:
        return str(uuid.UUID(text)) == text
    except ValueError:
        return False
