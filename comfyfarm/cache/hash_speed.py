"""Whether the processor computes SHA-256 by itself: without, hashing is the limit of every transfer."""

from pathlib import Path

_CPUINFO = Path("/proc/cpuinfo")
_WITH = {"sha_ni", "sha2"}
"""As Linux names the instructions of x86 and ARM."""


def hashes_fast(cpuinfo: str) -> bool | None:
    """Whether the processor that Linux describes so has SHA-256 instructions; None where it says nothing."""
    flags = [
        set(line.partition(":")[2].split())
        for line in cpuinfo.splitlines()
        if line.split(":")[0].strip().lower() in {"flags", "features"}
    ]
    return any(_WITH & each for each in flags) if flags else None


def slow_hash_warning() -> str | None:
    """What to tell at the start on a machine where hashing will be the limit; None elsewhere."""
    try:
        fast = hashes_fast(_CPUINFO.read_text(encoding="utf-8", errors="replace"))
    except OSError:
        return None  # no Linux: nothing is known
    if fast is not False:
        return None
    return (
        "this processor has no instructions for SHA-256 (sha_ni, sha2): hashing will be the limit, "
        "about 0.5 GiB/s for each file; several files are hashed side by side"
    )
