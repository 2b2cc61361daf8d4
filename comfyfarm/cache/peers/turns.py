"""Whose turn it is to fetch a file from the mirror, when many hosts want it at the same moment.

Pure: each host computes it for itself, and all that know the same hosts come to the same order. Hosts that
come or go move no turn but their own. Source: rendezvous hashing (Thaler, Ravishankar, 1996).
"""

import hashlib
from collections.abc import Iterable


def turns(sha256: str, hosts: Iterable[str]) -> tuple[str, ...]:
    """The hosts in the order in which they should begin with this file; each named once."""
    return tuple(sorted(set(hosts), key=lambda host: (_weight(sha256, host), host)))


def _weight(sha256: str, host: str) -> bytes:
    return hashlib.sha256(f"{sha256} {host}".encode("utf-8", "surrogatepass")).digest()
