"""`comfyfarm cache`: what is here, what stays, what leaves, and what became wrong."""

import fcntl
import hashlib
import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from comfyfarm.cache.blobs import BlobStore
from comfyfarm.cache.keeper.keeper import Bounds, Keeper
from comfyfarm.lock.lockfile import LockedModel

Command = Callable[..., Result]

NAMES = {"a": "checkpoints/sd/a.pt", "b": "vae/b.pt", "c": "vae/c.pt"}


def sha(word: str) -> str:
    return hashlib.sha256(word.encode() * 1000).hexdigest()


@pytest.fixture
def lock(command: Command, tmp_path: Path) -> Path:
    """Three models of 1000 bytes; hydrated and linked, `a` used longest ago."""
    models = []
    for word, name in NAMES.items():
        (tmp_path / word).write_bytes(word.encode() * 1000)
        folder, _, path = name.partition("/")
        models.append(
            {"folder": folder, "path": path, "sha256": sha(word), "size": 1000,
             "sources": [str(tmp_path / word)]}
        )  # fmt: skip
    file = tmp_path / "film.lock"
    file.write_text(json.dumps({"version": 1, "models": models}))
    assert command("hydrate", "--lock", file).exit_code == 0
    locked = [LockedModel.model_validate(model) for model in models]
    keeper = Keeper(BlobStore(tmp_path / "cache"), Bounds(None, 0))
    keeper.link(locked, tmp_path / "models")
    keeper.index.change(lambda db: db.execute("DELETE FROM uses").close())
    for used, word in enumerate(NAMES):
        os.utime(keeper.blobs.path(sha(word)), (used, used))
    return file


@pytest.fixture
def ls(command: Command) -> Callable[[], dict[str, dict[str, Any]]]:
    """The rows of `cache ls` by the word of the file."""

    def rows() -> dict[str, dict[str, Any]]:
        told = command("cache", "ls", "--json")
        assert told.exit_code == 0
        by_sha = {row["sha256"]: row for row in map(json.loads, told.stdout.splitlines())}
        return {word: by_sha[sha(word)] for word in "abcn" if sha(word) in by_sha}

    return rows


Ls = Callable[[], dict[str, dict[str, Any]]]


def test_files_are_listed_with_names_size_use_pins_and_who_uses_them(
    command: Command, lock: Path, ls: Ls, tmp_path: Path
) -> None:
    assert command("cache", "pin", "b.pt", "--why", "keep it").exit_code == 0
    keeper = Keeper(BlobStore(tmp_path / "cache"), Bounds(None, 0))
    with keeper.hold([LockedModel(folder="vae", path="c.pt", sha256=sha("c"), size=1000)], who="job 7"):
        rows = ls()
        table = command("cache", "ls").stdout

    assert {word: row["names"] for word, row in rows.items()} == {w: [name] for w, name in NAMES.items()}
    assert (rows["a"]["size"], rows["a"]["last_used"]) == (1000, 0.0)
    assert [rows[word]["pinned"] for word in "abc"] == [[], ["by hand (keep it)"], []]
    assert [rows[word]["in_use"] for word in "abc"] == [[], [], ["job 7"]]
    line = next(line for line in table.splitlines() if sha("b")[:12] in line)
    assert line.split() == [sha("b")[:12], "b.pt", "vae", "1000", "bytes", "1970-01-01", "00:00:01Z",
                            "by", "hand", "(keep", "it)"]  # fmt: skip


def test_a_lock_pins_its_files_also_those_that_are_not_here(
    command: Command, lock: Path, ls: Ls, tmp_path: Path
) -> None:
    assert command("cache", "evict", "a.pt").exit_code == 0
    told = command("cache", "pin", "--lock", lock)
    assert (told.exit_code, told.stdout[:21]) == (0, "3 files pinned by loc")
    rows = ls()
    assert (rows["a"]["size"], rows["a"]["names"]) == (None, [NAMES["a"]])
    assert rows["b"]["pinned"][0].endswith(f"({lock})")
    assert command("cache", "evict", "--all").stdout == "0 files evicted, 0 bytes freed\n"

    digest = rows["b"]["pinned"][0].split()[2]
    lock.write_text(json.dumps({"version": 1, "models": []}))
    assert "0 files no longer" in command("cache", "unpin", "--lock", lock).stdout
    assert "3 files no longer" in command("cache", "unpin", "--lock", digest[:12]).stdout
    assert command("cache", "evict", "--all").stdout == "2 files evicted, 2.0 KiB freed\n"
    assert not list((tmp_path / "models").rglob("*.pt"))


def test_pins_by_hand_come_and_go_and_a_locks_pin_stays_unless_it_is_meant(
    command: Command, lock: Path, ls: Ls
) -> None:
    command("cache", "pin", "--lock", lock, "a.pt", sha("n"))
    assert ls()["n"]["pinned"] == ["by hand"]
    told = command("cache", "unpin", "a.pt", sha("n"))
    assert "2 files no longer pinned by hand" in told.stdout
    assert f"{sha('a')[:12]} is still pinned by lock" in told.stderr
    assert command("cache", "unpin", "a.pt", "--anyones").stderr == ""
    assert command("cache", "evict", "a.pt").exit_code == 0


def test_what_is_pinned_or_in_use_stays_and_why_is_said(command: Command, lock: Path, tmp_path: Path) -> None:
    command("cache", "pin", "a.pt")
    told = command("cache", "evict", "a.pt", "b.pt", "--json")
    assert (told.exit_code, told.stderr) == (1, "checkpoints/sd/a.pt stays: pinned by hand\n")
    assert json.loads(told.stdout) == {
        "evicted": [sha("b")], "stayed": {sha("a"): "pinned by hand"}, "freed_bytes": 1000,
    }  # fmt: skip
    keeper = Keeper(BlobStore(tmp_path / "cache"), Bounds(None, 0))
    with keeper.hold([LockedModel(folder="vae", path="c.pt", sha256=sha("c"), size=1000)], who="job 7"):
        told = command("cache", "evict", "vae/c.pt")
        assert (told.exit_code, told.stderr) == (3, "vae/c.pt stays: in use by job 7\n")
        assert command("cache", "evict", "--to-gb", "0").exit_code == 3
        assert command("cache", "evict", "--all").exit_code == 0
    assert command("cache", "evict", sha("c")[:10]).exit_code == 0


def test_the_longest_unused_leave_first(command: Command, lock: Path, ls: Ls) -> None:
    told = command("cache", "evict", "--to-gb", str(2500 / 2**30))

    assert (told.exit_code, told.stdout) == (0, "1 file evicted, 1000 bytes freed\n")
    assert ls().keys() == {"b", "c"}


def test_a_bit_that_changed_is_found_quarantined_and_fetched_anew(
    command: Command, lock: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert command("cache", "verify").exit_code == 0
    blob = BlobStore(tmp_path / "cache").path(sha("b"))
    blob.chmod(0o644)
    blob.write_bytes(b"B" + b"b" * 999)

    assert command("cache", "verify", "a.pt").exit_code == 0
    told = command("cache", "verify", "--json")
    (wrong,) = json.loads(told.stdout)["spoiled"]
    assert (told.exit_code, wrong["sha256"]) == (3, sha("b"))
    assert Path(wrong["quarantined"]).read_bytes()[:1] == b"B"
    assert wrong["quarantined"] in told.stderr
    assert caplog.records == []  # the command says it, and once
    assert command("cache", "verify", sha("b")).exit_code == 3
    assert command("hydrate", "--lock", lock).exit_code == 0
    assert command("cache", "verify").stdout == "3 files read (2.9 KiB), 0 wrong\n"


def test_pipes_and_folders_in_the_way_hang_nothing_and_end_nothing(
    command: Command, lock: Path, tmp_path: Path
) -> None:
    blobs = BlobStore(tmp_path / "cache")
    blobs.path(sha("b")).unlink()
    os.mkfifo(blobs.path(sha("b")))
    os.mkfifo(blobs.root / ".leases" / "1-x.lease")
    (blobs.root / ".leases" / "2-x.lease").mkdir()

    assert command("cache", "stats").exit_code == 0
    told = command("cache", "verify")
    assert (told.exit_code, told.stdout) == (3, "3 files read (2.0 KiB), 1 wrong\n")
    assert told.stderr.endswith(f"{sha('b')}: it is no regular file\n")
    os.mkfifo(blobs.path(sha("b")))
    assert command("hydrate", "--lock", lock).exit_code == 0
    assert command("cache", "verify").exit_code == 0


def test_a_file_where_a_folder_of_the_cache_goes_is_named(
    command: Command, lock: Path, tmp_path: Path
) -> None:
    folder = BlobStore(tmp_path / "cache").path(sha("b")).parent
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()
    folder.write_bytes(b"mine")

    for words in (["hydrate", "--lock", lock], ["prewarm", lock], ["cache", "verify", sha("b")]):
        told = command(*words)
        assert (told.exit_code, f"{folder}: is no folder" in told.stderr) == (3, True), words


@pytest.mark.parametrize("paths", [("x", "x/y.pt"), ("m" * 300, "n.pt")])
def test_files_that_cannot_lie_beside_each_other_are_not_fetched(
    command: Command, tmp_path: Path, paths: tuple[str, str]
) -> None:
    models = [
        {"folder": "vae", "path": path, "sha256": sha(path), "size": 1, "sources": [str(tmp_path / "none")]}
        for path in paths
    ]
    file = tmp_path / "odd.lock"
    file.write_text(json.dumps({"version": 1, "models": models}))

    assert command("hydrate", "--lock", file).exit_code == 1
    assert command("prewarm", file).exit_code == 1
    assert not (tmp_path / "cache" / ".partial").exists()


def test_figures_are_for_people_programs_and_prometheus(
    command: Command, lock: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COMFYFARM_CACHE_QUOTA_GB", "2")
    command("cache", "evict", "a.pt")
    figures = json.loads(command("cache", "stats", "--json").stdout)
    assert (figures["files"], figures["bytes"], figures["quota_bytes"]) == (2, 2000, 2 << 30)
    assert (figures["evictions"], figures["evicted_bytes"]) == (1, 1000)
    lines = command("cache", "stats", "--prometheus").stdout.splitlines()
    assert "comfyfarm_cache_bytes 2000" in lines
    assert f"comfyfarm_cache_quota_bytes {2 << 30}" in lines
    shown = command("cache", "stats").stdout
    assert "quota        2.00 GiB" in shown
    assert "evictions    1 (1000 bytes)" in shown


def test_another_cache_is_another_cache(command: Command, lock: Path, tmp_path: Path) -> None:
    assert command("cache", "ls", "--json", "--cache", tmp_path / "other").stdout == ""
    assert not (tmp_path / "other").exists()


def test_wrong_words_are_usage_errors(command: Command, lock: Path) -> None:
    for words in (
        ["pin"], ["unpin"], ["evict"], ["evict", "a.pt", "--all"], ["evict", "--all", "--to-gb", "1"],
        ["pin", "nowhere.pt"], ["evict", "nowhere.pt"], ["verify", "nowhere.pt"],
    ):  # fmt: skip
        assert command("cache", *words).exit_code == 2, words
    assert command("cache", "pin", "--lock", lock.parent / "none").exit_code in {1, 2}


def test_a_cache_that_takes_nothing_is_named(command: Command, lock: Path, tmp_path: Path) -> None:
    door = tmp_path / "cache" / ".leases" / "door"
    door.unlink()
    door.mkdir()  # it cannot be opened for writing, not even by root

    told = command("cache", "evict", "a.pt")

    assert (told.exit_code, "the cache cannot be written" in told.stderr) == (3, True)
    assert command("cache", "ls").exit_code == 0


def test_a_lease_of_a_dead_process_holds_nothing(command: Command, lock: Path, tmp_path: Path) -> None:
    lease = tmp_path / "cache" / ".leases" / "1-dead.lease"
    lease.write_text(json.dumps({"v": 1, "who": "x", "since": 0, "files": {sha("a"): 1000}}))
    with lease.open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert command("cache", "evict", "a.pt").exit_code == 3
    assert command("cache", "evict", "a.pt").exit_code == 0
    assert not lease.exists()


def test_people_see_the_beginning_of_a_digest(command: Command, lock: Path) -> None:
    command("cache", "pin", "--lock", lock)

    listed, evicted = command("cache", "ls").stdout, command("cache", "evict", "vae/b.pt").stderr

    (pinned,) = re.findall(r"stays: pinned by lock ([0-9a-f]+)", evicted)
    assert len(pinned) == 12
    assert listed.count(f"by lock {pinned} ") == 3
    assert command("cache", "unpin", "--lock", pinned).stdout.startswith("3 files")


def test_commands_are_told_in_the_order_of_their_use(command: Command) -> None:
    told = command("cache", "--help").stdout.partition("Commands:")[2]
    names = re.findall(r"^  (\w+)", told, re.MULTILINE)
    assert " ".join(names) == "ls pin unpin evict verify stats serve"


@pytest.mark.parametrize("words", [["cache", "ls"], ["hydrate", "--lock"], ["prewarm"]])
def test_a_cache_that_is_a_file_is_wrong_usage(
    command: Command, lock: Path, tmp_path: Path, words: list[str]
) -> None:
    file = tmp_path / "a"
    told = command(*words, *([] if "ls" in words else [lock]), "--cache", file)
    assert (told.exit_code, told.stderr) == (2, f"comfyfarm: the cache is a file: {file}\n")
