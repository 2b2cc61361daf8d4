"""What lies under the names of a landing's files, and is none of them: removed, never followed."""

import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from comfyfarm.cache.held_folder import is_held
from comfyfarm.cache.transfer.chunks import CHUNK_BYTES
from comfyfarm.cache.transfer.landing import open_landing

if TYPE_CHECKING:
    from tests.core.cache.transfer.landing.conftest import Land

NAMES = ("data", "journal", "lock")


def _whole(land: "type[Land]", folder: Path, data: bytes) -> bytes:
    landing = open_landing(folder, len(data), stop=land.give_up)
    assert landing.resumed_bytes == 0
    land.fill(landing, data)
    landing.publish(folder.parent.parent / "final", mode=0o444)
    final = folder.parent.parent / "final"
    assert not final.is_symlink()
    return final.read_bytes()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("is_there", [True, False])
def test_a_link_is_removed_and_what_it_leads_to_stays_as_it_is(
    land: "type[Land]", folder: Path, tmp_path: Path, name: str, is_there: bool
) -> None:
    outside = tmp_path / "outside"
    if is_there:
        outside.write_bytes(b"precious")
        outside.chmod(0o444)
    folder.mkdir(parents=True)
    (folder / name).symlink_to(outside)
    data = land.noise(2 * CHUNK_BYTES + 5)

    assert _whole(land, folder, data) == data
    assert outside.exists() == is_there
    if is_there:
        assert outside.read_bytes() == b"precious"
        assert outside.stat().st_mode & 0o777 == 0o444


def test_data_that_became_a_link_is_fetched_anew_whatever_the_journal_says(
    land: "type[Land]", folder: Path, tmp_path: Path
) -> None:
    data = land.noise(2 * CHUNK_BYTES)
    landing = open_landing(folder, len(data), stop=land.go_on)
    land.bring(landing, data, 0)
    landing.close(keep=True)
    (folder / "data").rename(tmp_path / "outside")
    (folder / "data").symlink_to(tmp_path / "outside")

    assert _whole(land, folder, data) == data
    assert (tmp_path / "outside").read_bytes() == data[:CHUNK_BYTES]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", ["pipe", "socket"])
def test_a_pipe_or_socket_is_removed_and_nobody_waits_for_its_other_end(
    land: "type[Land]", folder: Path, name: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.mkdir(parents=True)
    if kind == "pipe":
        os.mkfifo(folder / name)
    else:
        monkeypatch.chdir(folder)  # a socket's path may not be long
        with socket.socket(socket.AF_UNIX) as one:
            one.bind(name)
    assert not is_held(folder)
    data = land.noise(5)

    assert _whole(land, folder, data) == data


@pytest.mark.parametrize("name", NAMES)
def test_a_folder_in_the_way_is_named(land: "type[Land]", folder: Path, name: str) -> None:
    (folder / name).mkdir(parents=True)

    with pytest.raises(OSError, match="a folder lies where a file of ours belongs") as caught:
        open_landing(folder, 9, stop=land.give_up)

    assert caught.value.filename == str(folder / name)
    assert (folder / name).is_dir()
    assert not is_held(folder)
