"""`comfyfarm mirror`: add, ls, verify, gc and sign, as they are called."""

import hashlib
import json
import stat
import threading
from collections.abc import Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from infra.s3_server import S3Server, s3_server

Command = Callable[..., Result]


def _sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _blob(mirror: Path, data: bytes) -> Path:
    return mirror / "sha256" / _sha(data)[:2] / _sha(data)


def _meta(mirror: Path, data: bytes) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((mirror / "meta" / f"{_sha(data)}.json").read_text())
    return found


class _Silent(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """Stay silent."""


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """A folder, and its address on the web (a server without ranges)."""
    folder = tmp_path / "web"
    folder.mkdir()
    handler = partial(_Silent, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        yield folder, f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """A real S3 server."""
    with s3_server(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture
def bucket(s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Address of an empty mirror in a bucket that the environment has credentials for."""
    for name, value in s3.environment.items():
        monkeypatch.setenv(name, value)
    return f"s3://{s3.bucket}/{tmp_path.name}"


@pytest.fixture
def mirror(tmp_path: Path) -> Path:
    """A folder that is to be a mirror."""
    return tmp_path / "mirror"


def _lock(path: Path, *models: dict[str, Any]) -> Path:
    path.write_text(json.dumps({"version": 1, "models": list(models)}))
    return path


def _model(data: bytes, *sources: str, folder: str = "loras", path: str = "sub/m.pt") -> dict[str, Any]:
    return {"folder": folder, "path": path, "sha256": _sha(data), "size": len(data), "sources": list(sources)}


# --- add ----------------------------------------------------------------------------------------


def test_several_files_are_added_at_once(command: Command, mirror: Path, tmp_path: Path) -> None:
    files = []
    for n in range(7):
        files.append(tmp_path / f"{n}.pt")
        files[-1].write_bytes(bytes([n]) * 1000)

    told = command("mirror", "add", *files, "--mirror", mirror, "--folder", "vae", "--licence", "MIT")

    assert told.exit_code == 0, told.output
    assert {tuple(line.split("  ")) for line in told.stdout.splitlines()} == {
        (_sha(file.read_bytes()), str(file)) for file in files
    }
    entry = _meta(mirror, files[3].read_bytes())
    assert (entry["names"], entry["folder"], entry["licence"]) == (["3.pt"], "vae", "MIT")


def test_one_file_that_fails_stops_no_other(command: Command, mirror: Path, tmp_path: Path) -> None:
    (tmp_path / "page.pt").write_bytes(b"<!DOCTYPE html>")
    (tmp_path / "good.pt").write_bytes(b"good")

    told = command("mirror", "add", tmp_path / "page.pt", tmp_path / "good.pt", "--mirror", mirror)

    assert told.exit_code == 1
    assert "page.pt: is a web page" in told.stderr
    assert _blob(mirror, b"good").read_bytes() == b"good"
    assert not _blob(mirror, b"<!DOCTYPE html>").exists()


def test_a_url_is_fetched_described_and_leaves_nothing(
    command: Command, mirror: Path, served: tuple[Path, str], tmp_path: Path
) -> None:
    folder, address = served
    (folder / "m.pt").write_bytes(b"weights" * 1000)

    told = command(
        "mirror", "add", f"{address}/m.pt", "--mirror", mirror, "--sha256", _sha(b"weights" * 1000)
    )

    assert told.exit_code == 0, told.output
    assert _blob(mirror, b"weights" * 1000).exists()
    entry = _meta(mirror, b"weights" * 1000)
    assert (entry["names"], entry["source"]) == (["m.pt"], f"{address}/m.pt")
    left = [
        path.name
        for path in (tmp_path / "cache").rglob("*")
        if path.is_file() and path.stat().st_size > 10**3
    ]
    assert left == []
    assert not list((tmp_path / "cache" / ".partial").glob("*"))


def test_a_file_of_other_bytes_than_were_said_is_at_fault(
    command: Command, mirror: Path, tmp_path: Path
) -> None:
    (tmp_path / "m.pt").write_bytes(b"weights")

    told = command("mirror", "add", tmp_path / "m.pt", "--mirror", mirror, "--sha256", "ab" * 32)

    assert told.exit_code == 1
    assert "was expected" in told.stderr


@pytest.mark.parametrize("words", [["ls"], ["verify"], ["add", __file__], ["gc", "--keep", "x.lock"]])
def test_a_bucket_without_any_credentials_is_wrong_usage(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "nothing"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    (tmp_path / "x.lock").write_text('{"version": 1, "models": []}')
    monkeypatch.chdir(tmp_path)

    told = command("mirror", *words, "--mirror", "s3://models/farm")

    assert told.exit_code == 2
    assert "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY" in told.stderr


def test_a_url_of_other_bytes_or_of_nothing_is_named(
    command: Command, mirror: Path, served: tuple[Path, str]
) -> None:
    folder, address = served
    (folder / "m.pt").write_bytes(b"weights")
    (folder / "page.pt").write_bytes(b"<html>log in</html>")

    other = command("mirror", "add", f"{address}/m.pt", "--mirror", mirror, "--sha256", "ab" * 32)
    absent = command("mirror", "add", f"{address}/absent.pt", "--mirror", mirror)
    page = command("mirror", "add", f"{address}/page.pt", "--mirror", mirror)

    assert (other.exit_code, absent.exit_code, page.exit_code) == (3, 1, 1)
    assert "was expected" in other.stderr
    assert "answered 404" in absent.stderr
    assert "web page" in page.stderr
    assert not mirror.exists()


def test_what_a_lock_names_and_the_mirror_lacks_comes_from_the_locks_sources(
    command: Command, mirror: Path, served: tuple[Path, str], tmp_path: Path
) -> None:
    folder, address = served
    (folder / "a.pt").write_bytes(b"from the web")
    (tmp_path / "b.pt").write_bytes(b"from a path")
    lock = _lock(
        tmp_path / "comfyfarm.lock",
        _model(b"from the web", f"{address}/a.pt"),
        _model(b"from the web", f"{address}/a.pt", path="other.pt"),
        _model(b"from a path", str(tmp_path / "b.pt"), folder="vae", path="b.pt"),
    )

    first = command("mirror", "add", "--lock", lock, "--mirror", mirror, "--licence", "MIT")
    (folder / "a.pt").unlink()
    again = command("mirror", "add", "--lock", lock, "--mirror", mirror)

    assert first.exit_code == 0, first.output
    assert again.exit_code == 0, again.output
    assert "2 files of the lock are in the mirror already" in again.stderr
    entry = _meta(mirror, b"from the web")
    assert (entry["names"], entry["folder"]) == (["other.pt", "sub/m.pt"], "loras")
    assert (entry["source"], entry["licence"]) == (f"{address}/a.pt", "MIT")
    assert _meta(mirror, b"from a path")["source"] is None, "a path of this machine says nothing elsewhere"


def test_a_small_cache_is_no_bound_for_a_large_lock(
    command: Command, mirror: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COMFYFARM_CACHE_QUOTA_GB", str(4 / 1024))
    files = [bytes([n]) * (3 << 20) for n in range(4)]
    for n, data in enumerate(files):
        (tmp_path / f"{n}.pt").write_bytes(data)
    models = [_model(data, str(tmp_path / f"{n}.pt"), path=f"{n}.pt") for n, data in enumerate(files)]
    large = bytes([9]) * (5 << 20)
    (tmp_path / "large.pt").write_bytes(large)
    models.append(_model(large, str(tmp_path / "large.pt"), path="large.pt"))

    told = command("mirror", "add", "--lock", _lock(tmp_path / "lock", *models), "--mirror", mirror)

    assert told.exit_code == 2, "one of them never fits"
    assert all(_blob(mirror, data).exists() for data in files)
    assert not _blob(mirror, large).exists()
    cached = sum(path.stat().st_size for path in (tmp_path / "cache" / "sha256").rglob("*") if path.is_file())
    assert cached <= 4 << 20


def test_a_locked_file_that_has_no_source_is_named_and_the_others_come(
    command: Command, mirror: Path, tmp_path: Path
) -> None:
    (tmp_path / "b.pt").write_bytes(b"here")
    lock = _lock(
        tmp_path / "comfyfarm.lock",
        _model(b"nowhere"),
        _model(b"here", str(tmp_path / "b.pt"), path="b.pt"),
    )

    told = command("mirror", "add", "--lock", lock, "--mirror", mirror)

    assert told.exit_code == 3
    assert _sha(b"nowhere") in told.stderr
    assert _blob(mirror, b"here").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "nothing to add"),
        (("{tmp}/absent.pt",), "there is no such file"),
        (("{tmp}",), "is a folder"),
        (("{tmp}/a.pt", "{tmp}/a.pt", "--sha256", "ab" * 32), "--sha256 is of one file"),
        (("{tmp}/a.pt", "--sha256", "AB"), "write 64 of"),
        (("--lock", "{tmp}/l", "--folder", "vae"), "the lock says it"),
    ],
)
def test_wrong_words_end_it_before_anything_starts(
    command: Command, mirror: Path, tmp_path: Path, words: tuple[str, ...], message: str
) -> None:
    (tmp_path / "a.pt").write_bytes(b"a")
    told = command("mirror", "add", *(word.format(tmp=tmp_path) for word in words), "--mirror", mirror)
    assert told.exit_code == 2
    assert message in told.stderr
    assert not mirror.exists()


@pytest.mark.parametrize("verb", ["add", "ls", "verify", "gc", "sign"])
@pytest.mark.parametrize("kind", ["file", "web", "unknown"])
def test_a_mirror_that_can_be_none_is_wrong_usage(
    command: Command, tmp_path: Path, verb: str, kind: str
) -> None:
    (tmp_path / "file").write_bytes(b"a")
    lock = _lock(tmp_path / "lock")
    address = {"file": str(tmp_path / "file"), "web": "https://u:secret@host/m", "unknown": "gopher://h/m"}[
        kind
    ]
    own = {"add": (tmp_path / "file",), "gc": ("--keep", lock), "sign": ("--lock", lock)}.get(verb, ())

    told = command("mirror", verb, *own, "--mirror", address)

    assert told.exit_code == 2
    assert {"file": "is a file", "web": "a web server", "unknown": "is not known"}[kind] in told.stderr
    assert "secret" not in told.output


@pytest.mark.parametrize(
    "words", [("ls",), ("verify",), ("gc", "--keep", "{tmp}/lock"), ("sign", "--lock", "{tmp}/lock")]
)
def test_a_mirror_that_is_not_there_is_not_taken_for_an_empty_one(
    command: Command, mirror: Path, tmp_path: Path, words: tuple[str, ...]
) -> None:
    _lock(tmp_path / "lock")
    told = command("mirror", *(word.format(tmp=tmp_path) for word in words), "--mirror", mirror)
    assert told.exit_code == 2
    assert "there is no such folder" in told.stderr


# --- ls, verify ---------------------------------------------------------------------------------


def test_what_it_holds_is_listed(command: Command, mirror: Path, tmp_path: Path) -> None:
    for name in ("b.pt", "a.pt"):
        (tmp_path / name).write_bytes(name.encode() * 100)
    command("mirror", "add", tmp_path / "a.pt", "--mirror", mirror, "--folder", "vae", "--licence", "MIT")
    command("mirror", "add", tmp_path / "b.pt", "--mirror", mirror, "--folder", "vae")
    _blob(mirror, b"b.pt" * 100).unlink()

    told = command("mirror", "ls", "--mirror", mirror)
    rows = [
        json.loads(row) for row in command("mirror", "ls", "--mirror", mirror, "--json").stdout.splitlines()
    ]

    first, second = told.stdout.splitlines()
    assert first.startswith(_sha(b"a.pt" * 100))
    assert all(word in first for word in ("vae", "a.pt", "[MIT]"))
    assert "no file" in second
    assert rows[0] == {
        "sha256": _sha(b"a.pt" * 100),
        "names": ["a.pt"],
        "folder": "vae",
        "size": 400,
        "source": None,
        "licence": "MIT",
    }
    assert rows[1]["size"] is None


def test_a_spoiled_file_is_found_and_mended_as_is_said(
    command: Command, mirror: Path, tmp_path: Path
) -> None:
    (tmp_path / "a.pt").write_bytes(b"right")
    command("mirror", "add", tmp_path / "a.pt", "--mirror", mirror)
    blob = _blob(mirror, b"right")
    blob.chmod(0o644)
    blob.write_bytes(b"wrong")

    shallow = command("mirror", "verify", "--mirror", mirror)
    deep = command("mirror", "verify", "--mirror", mirror, "--deep", "--json")

    assert shallow.exit_code == 0
    assert "checked by size alone" in shallow.stderr
    assert "verified" not in shallow.stderr
    assert deep.exit_code == 3
    problem = json.loads(deep.stdout)
    assert (problem["sha256"], problem["code"], problem["bad_parts"]) == (_sha(b"right"), "wrong_bytes", [0])
    assert "`comfyfarm mirror add --deep FILE` mends" in deep.stderr
    assert command("mirror", "add", "--deep", tmp_path / "a.pt", "--mirror", mirror).exit_code == 0
    assert command("mirror", "verify", "--mirror", mirror, "--deep").exit_code == 0


def test_single_files_are_verified(command: Command, mirror: Path, tmp_path: Path) -> None:
    (tmp_path / "a.pt").write_bytes(b"right")
    command("mirror", "add", tmp_path / "a.pt", "--mirror", mirror)

    assert command("mirror", "verify", _sha(b"right"), "--mirror", mirror).exit_code == 0
    absent = command("mirror", "verify", "ab" * 32, "--mirror", mirror)
    assert (absent.exit_code, absent.stdout) == (3, f"{'ab' * 32}: no_file: the file is not there\n")
    assert command("mirror", "verify", "xyz", "--mirror", mirror).exit_code == 2
    assert command("mirror", "verify", "ab" * 32, "--all", "--mirror", mirror).exit_code == 2


# --- gc -----------------------------------------------------------------------------------------


def test_gc_says_what_would_go_and_goes_only_when_told(
    command: Command, mirror: Path, tmp_path: Path
) -> None:
    for name in ("kept", "gone"):
        (tmp_path / name).write_bytes(name.encode())
        command("mirror", "add", tmp_path / name, "--mirror", mirror)
    lock = _lock(tmp_path / "lock", _model(b"kept"))
    words = ("mirror", "gc", "--mirror", mirror, "--keep", lock)

    young = command(*words)
    would = command(*words, "--older-than", "0")
    assert _blob(mirror, b"gone").exists()
    does = command(*words, "--older-than", "0", "--yes")

    assert (young.exit_code, would.exit_code, does.exit_code) == (0, 0, 0)
    assert "nothing to remove; 1 kept by locks, 1 too young" in young.stderr
    assert would.stdout.startswith(f"would remove {_sha(b'gone')}")
    assert "--yes removes them" in would.stderr
    assert "1 of 1 file" in does.stderr
    assert not _blob(mirror, b"gone").exists()
    assert not (mirror / "meta" / f"{_sha(b'gone')}.json").exists()
    assert command("mirror", "verify", "--mirror", mirror, "--deep").exit_code == 0


def test_gc_without_a_lock_is_refused(command: Command, mirror: Path) -> None:
    assert command("mirror", "gc", "--mirror", mirror, "--yes").exit_code == 2


# --- a bucket, and what it signs ----------------------------------------------------------------


def test_a_bucket_does_all_that_a_folder_does(command: Command, bucket: str, tmp_path: Path) -> None:
    for name in ("kept", "gone"):
        (tmp_path / name).write_bytes(name.encode())
    lock = _lock(tmp_path / "lock", _model(b"kept"))
    assert command("mirror", "add", tmp_path / "kept", tmp_path / "gone", "--mirror", bucket).exit_code == 0
    assert len(command("mirror", "ls", "--mirror", bucket, "--json").stdout.splitlines()) == 2
    verified = command("mirror", "verify", "--all", "--mirror", bucket)
    assert (verified.exit_code, verified.stderr) == (0, "2 files verified\n")

    command("mirror", "gc", "--mirror", bucket, "--keep", lock, "--older-than", "0", "--yes")

    (left,) = command("mirror", "ls", "--mirror", bucket, "--json").stdout.splitlines()
    assert json.loads(left)["names"] == ["kept"]


def test_a_signed_list_is_private_and_its_addresses_are_printed_nowhere(
    command: Command, bucket: str, tmp_path: Path
) -> None:
    (tmp_path / "m.pt").write_bytes(b"weights")
    command("mirror", "add", tmp_path / "m.pt", "--mirror", bucket)
    lock = _lock(tmp_path / "lock", _model(b"weights"))
    out = tmp_path / "signed.json"

    told = command("mirror", "sign", "--lock", lock, "--mirror", bucket, "--hours", "0.5", "--out", out)
    asked = command("mirror", "sign", "--lock", lock, "--mirror", bucket, "--out", "-")

    assert told.exit_code == 0, told.output
    assert stat.S_IMODE(out.stat().st_mode) == 0o600
    assert "X-Amz-Signature" not in told.output
    assert "X-Amz-Signature" in json.loads(out.read_text())["files"][_sha(b"weights")]
    assert list(json.loads(asked.stdout)["files"]) == [_sha(b"weights")]
    assert "X-Amz-Signature" not in asked.stderr
    assert [path.name for path in tmp_path.glob(".signed*")] == []


def test_what_the_mirror_lacks_is_not_signed_in_silence(
    command: Command, bucket: str, tmp_path: Path
) -> None:
    (tmp_path / "m.pt").write_bytes(b"weights")
    command("mirror", "add", tmp_path / "m.pt", "--mirror", bucket)
    lock = _lock(tmp_path / "lock", _model(b"weights"), _model(b"absent", path="absent.pt"))
    words = ("mirror", "sign", "--lock", lock, "--mirror", bucket, "--out", tmp_path / "signed.json")

    refused = command(*words)
    partial_list = command(*words, "--partial")

    assert refused.exit_code == 1
    assert "loras/absent.pt" in refused.stderr
    assert "mirror add --lock" in refused.stderr
    assert partial_list.exit_code == 0
    assert list(json.loads((tmp_path / "signed.json").read_text())["files"]) == [_sha(b"weights")]


def test_a_folder_signs_nothing(command: Command, mirror: Path, tmp_path: Path) -> None:
    mirror.mkdir()
    told = command("mirror", "sign", "--lock", _lock(tmp_path / "lock"), "--mirror", mirror)
    assert told.exit_code == 2
    assert "only a bucket" in told.stderr
