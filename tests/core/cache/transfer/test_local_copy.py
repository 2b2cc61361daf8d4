"""A path of this machine as a source."""

from pathlib import Path

import pytest

from comfyfarm.cache.transfer.landing import Landing, open_landing
from comfyfarm.cache.transfer.local_copy import copy_file
from comfyfarm.cache.transfer.source import Flow, SourceFailed


def _landing(folder: Path, size: int, flow: Flow) -> Landing:
    return open_landing(folder / "partial", size, stop=flow.check)


def test_a_file_is_copied(tmp_path: Path, matter: bytes) -> None:
    counted: list[int] = []
    flow = Flow(counted.append)
    (tmp_path / "m").write_bytes(matter)
    landing = _landing(tmp_path, len(matter), flow)

    copy_file(tmp_path / "m", len(matter), landing, flow=flow)

    landing.digest(flow.check)
    landing.publish(tmp_path / "final", mode=0o644)
    assert (tmp_path / "final").read_bytes() == matter
    assert sum(counted) == len(matter)


@pytest.mark.parametrize(
    ("made", "reason"), [(None, "not there"), (b"few", "3 bytes instead of 5246977")], ids=["absent", "short"]
)
def test_a_path_that_is_not_the_file_is_named(
    tmp_path: Path, matter: bytes, made: bytes | None, reason: str
) -> None:
    flow = Flow(lambda _: None)
    if made is not None:
        (tmp_path / "m").write_bytes(made)
    landing = _landing(tmp_path, len(matter), flow)

    with pytest.raises(SourceFailed) as caught:
        copy_file(tmp_path / "m", len(matter), landing, flow=flow)
    landing.close(keep=False)

    assert (caught.value.address, caught.value.reason) == (str(tmp_path / "m"), reason)


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    flow = Flow(lambda _: None)
    landing = _landing(tmp_path, 9, flow)

    with pytest.raises(SourceFailed, match="instead of 9"):
        copy_file(tmp_path, 9, landing, flow=flow)
    landing.close(keep=False)
