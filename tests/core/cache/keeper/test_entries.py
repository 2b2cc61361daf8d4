"""Finding files by the words that people use."""

import pytest

from comfyfarm.cache.keeper.entries import Entry, find_shas
from comfyfarm.errors import UsageError


def entry(sha256: str, *names: str) -> Entry:
    return Entry(
        sha256=sha256, names=names, size=1, last_used=0.0, first_seen=0.0, source="", pinned=(), in_use=()
    )


A, B, C = "abcdef0" + "1" * 57, "abcdef0" + "2" * 57, "3" * 64
ENTRIES = (entry(A, "checkpoints/sd/x.pt", "loras/x.pt"), entry(B, "vae/x.pt", "vae/y.pt"), entry(C))


@pytest.mark.parametrize(
    ("word", "sha256"),
    [
        (A, A), (A.upper(), A), (A[:8], A), ("checkpoints/sd/x.pt", A), ("sd/x.pt", A), ("y.pt", B),
        ("333333", C),
    ],
)  # fmt: skip
def test_a_word_means_one_file(word: str, sha256: str) -> None:
    assert find_shas([word, word], ENTRIES) == (sha256,)


@pytest.mark.parametrize(
    ("word", "told"),
    [
        ("x.pt", "means 2 files"),
        ("abcdef", "means 2 files"),
        ("z.pt", "no file of this cache"),
        ("33333", "no file"),
    ],
)
def test_a_word_that_means_none_or_several_is_refused(word: str, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        find_shas([word], ENTRIES)


def test_a_hash_may_be_named_before_its_file_comes() -> None:
    with pytest.raises(UsageError, match="no file of this cache"):
        find_shas(["4" * 64], ENTRIES)
    assert find_shas(["4" * 64], ENTRIES, may_come=True) == ("4" * 64,)
