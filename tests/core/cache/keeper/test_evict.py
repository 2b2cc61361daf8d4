"""Links leave before their blob, and nobody else's files with them."""

import dataclasses
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from comfyfarm.cache.blobs import BlobStore
from comfyfarm.cache.keeper.keeper import Keeper
from comfyfarm.cache.layout import write_extra_model_paths

Put = Callable[..., Any]
Make = Callable[..., Any]
Keep = Callable[..., Keeper]


@pytest.mark.parametrize("hard", [False, True])
def test_evicting_removes_every_link_of_ours_first(
    put: Put, keep: Keep, blobs: BlobStore, tmp_path: Path, hard: bool
) -> None:
    model, stays = put("a"), put("b")
    (view_link,) = [keep().view("d1", [model, stays]) / "vae" / "a.pt"]
    one, other = keep().link([model, stays], tmp_path / "models", hard=hard)
    (again,) = keep().link([model.called("again.pt")], tmp_path / "elsewhere", hard=hard)

    kept = keep().evict([model.sha256])

    assert (kept.evicted, kept.freed_bytes) == ((model.sha256,), 1000)
    assert [os.path.lexists(path) for path in (view_link, one, again, other)] == [False, False, False, True]
    assert keep().index.read().links.keys() == {stays.sha256}
    assert not blobs.has(model.sha256)


def test_names_that_are_no_longer_ours_are_left_alone(put: Put, keep: Keep, tmp_path: Path) -> None:
    a, b = put("a"), put("b")
    models = tmp_path / "models"
    moved, mine = keep().link([a, a.called("mine.pt")], models)
    keep().link([b.called("a.pt")], models)  # the name has moved on to other content
    mine.unlink()
    mine.write_bytes(b"mine")

    keep().evict([a.sha256])

    assert moved.read_bytes() == b.data
    assert mine.read_bytes() == b"mine"
    keep().evict([b.sha256])
    assert not os.path.lexists(moved)


def test_a_file_whose_room_would_not_come_back_is_not_taken_for_room(
    put: Put, keep: Keep, blobs: BlobStore, tmp_path: Path, blob: Make
) -> None:
    strange, ours = put("strange", used=1), put("ours", used=2)
    keep().link([ours], tmp_path / "models", hard=True)
    (tmp_path / "strange.pt").hardlink_to(blobs.path(strange.sha256))

    with keep(2000).hold([blob("new")]) as held:
        assert held.evicted == (ours.sha256,)
    kept = keep().evict([strange.sha256])  # by name it leaves, and that is no gain
    assert (kept.evicted, kept.freed_bytes) == ((strange.sha256,), 0)
    assert (tmp_path / "strange.pt").read_bytes() == strange.data


def test_evictions_are_counted(put: Put, keep: Keep) -> None:
    keep().evict([put("a").sha256, put("b", size=500).sha256])

    counters = keep().index.read().counters
    assert (counters[("evictions", "")], counters[("evicted_bytes", "")]) == (2, 1500)


def test_links_of_a_lost_index_are_found_in_the_views(put: Put, keep: Keep) -> None:
    model = put("a")
    view = keep().view("d1", [model])
    keep().index.path.unlink()

    keep().evict([model.sha256])

    assert not os.path.lexists(view / "vae" / "a.pt")


def test_a_view_goes_with_its_last_file_and_other_views_stay(put: Put, keep: Keep, blobs: BlobStore) -> None:
    a, b = put("a"), put("b")
    one = keep().view("d1", [a, dataclasses.replace(b, folder="loras")])
    other = keep().view("d2", [b])
    opened = blobs.root / "views" / "d3" / "vae"
    opened.mkdir(parents=True)  # a process is about to fill it
    configs = [write_extra_model_paths(view, blobs.disk) for view in (one, other)]

    keep().evict([a.sha256])
    assert [one.exists(), other.exists(), *(config.exists() for config in configs)] == [True] * 4
    keep().evict([b.sha256])

    assert [path.name for path in (blobs.root / "views").iterdir()] == ["d3"]
    assert opened.exists()


def test_a_view_in_which_somebody_put_a_file_stays(put: Put, keep: Keep) -> None:
    model = put("a")
    view = keep().view("d1", [model])
    (view / "vae" / "mine.pt").write_bytes(b"mine")

    keep().evict([model.sha256])

    assert (view / "vae" / "mine.pt").read_bytes() == b"mine"
