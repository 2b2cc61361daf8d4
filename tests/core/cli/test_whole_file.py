"""Files that a command writes: whole or not at all, and never in place of what is no file."""

import os
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from comfyfarm.cli.whole_file import whole_file
from comfyfarm.errors import UsageError


def test_it_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    file = tmp_path / "a.lock"
    with suppress(ValueError), whole_file(file) as partial:
        partial.write_text("half")
        raise ValueError("stop")

    assert list(tmp_path.iterdir()) == []
    with whole_file(file) as partial:
        partial.write_text("whole")
    assert file.read_text() == "whole"
    assert list(tmp_path.iterdir()) == [file]


def test_a_link_stays_and_its_target_is_written(tmp_path: Path) -> None:
    real, link = tmp_path / "real.lock", tmp_path / "link.lock"
    real.write_text("old")
    link.symlink_to(real)
    with whole_file(link) as partial:
        partial.write_text("new")

    assert link.is_symlink()
    assert real.read_text() == "new"


def test_a_pipe_is_written_to_and_stays_one(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read: list[str] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_text()))
    reader.start()
    with whole_file(pipe) as partial:
        partial.write_text("through")
    reader.join(timeout=10)

    assert read == ["through"]
    assert pipe.is_fifo()


def test_a_folder_in_the_way_is_named(tmp_path: Path) -> None:
    file = tmp_path / "a.lock"
    file.mkdir()

    with pytest.raises(UsageError, match=r"a\.lock: cannot be written"), whole_file(file) as partial:
        partial.write_text("x")
