"""Whether the processor hashes by itself, from what Linux says of it."""

from pathlib import Path

import pytest

from comfyfarm.cache import hash_speed
from comfyfarm.cache.hash_speed import hashes_fast, slow_hash_warning


@pytest.mark.parametrize(
    ("cpuinfo", "fast"),
    [
        ("processor\t: 0\nflags\t\t: fpu sse2 sha_ni avx2\n", True),
        ("processor\t: 0\nflags\t\t: fpu sse2 avx2\n", False),
        ("processor\t: 0\nFeatures\t: fp asimd sha1 sha2 crc32\n", True),
        ("processor\t: 0\nFeatures\t: fp asimd crc32\n", False),
        ("processor\t: 0\n", None),
        ("", None),
    ],
)
def test_instructions_for_sha256_are_recognised(cpuinfo: str, fast: bool | None) -> None:
    assert hashes_fast(cpuinfo) is fast


def test_a_host_without_them_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Patched: this machine is what it is.
    monkeypatch.setattr(hash_speed, "_CPUINFO", tmp_path / "cpuinfo")
    assert slow_hash_warning() is None
    (tmp_path / "cpuinfo").write_text("flags\t\t: fpu\n")
    assert "hashing will be the limit" in (slow_hash_warning() or "")
    (tmp_path / "cpuinfo").write_text("flags\t\t: fpu sha_ni\n")
    assert slow_hash_warning() is None
