"""Finding files by the words that people use."""

from collections.abc import Callable
from typing import Any

import pytest

from comfyfarm.cache.blobs import BlobStore
from comfyfarm.cache.keeper.entries import Entry, find_shas, list_entries
from comfyfarm.cache.keeper.keeper import Keeper
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


def test_what_is_held_has_its_names_before_and_after_it_comes_without_a_link(
    keep: Callable[..., Keeper], blob: Callable[..., Any], fill: Callable[..., None], blobs: BlobStore
) -> None:
    model, keeper = blob("fox"), keep()

    with keeper.hold([model, model.called("sub/other.pt")]):
        fill(blobs, model)
        (during,) = list_entries(keeper)
    (after,) = list_entries(keeper)

    assert sorted(during.names) == sorted(after.names) == ["vae/fox.pt", "vae/sub/other.pt"]
    assert find_shas(["other.pt"], [after]) == (model.sha256,)
    assert keeper.evict([model.sha256]).evicted == (model.sha256,)
    assert list_entries(keeper) == ()
    assert keeper.index.read().links == {}
