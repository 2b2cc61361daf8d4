"""The keeper of a host's cache, as settings and a call name it."""

from pathlib import Path

import pytest

from comfyfarm.farm.supplies import keeper_from
from comfyfarm.settings import read_settings


def test_a_cache_is_the_calls_own_or_that_of_the_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    settings = read_settings({"COMFYFARM_CACHE_DIR": "/srv/cache", "COMFYFARM_CACHE_QUOTA_GB": "2"})

    assert keeper_from(settings).blobs.root == Path("/srv/cache")
    # A link holds the blob's whole path, wherever the call was made.
    assert keeper_from(settings, Path("here")).blobs.root == tmp_path / "here"
    assert keeper_from(settings).bounds == (2 << 30, 1 << 30)
