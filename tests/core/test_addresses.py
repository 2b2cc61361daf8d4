"""Names of small files: paths and addresses, read whole and shown without their secrets."""

import socket
import traceback
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, cast

import aiohttp
import pytest
from aiohttp import web as web_server
from botocore.exceptions import (
    EndpointConnectionError,
    NoCredentialsError,
    ParamValidationError,
    ProfileNotFound,
)
from hypothesis import given
from hypothesis import strategies as st

from comfyfarm.addresses import base_name, expanded, is_address, mask, read_bytes, sibling, told_errors
from comfyfarm.errors import FarmError, InputError, TryLater, UsageError
from fake_server.serve import serve


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("s3://bucket/w.json", True),
        ("HTTPS://host/w.json", True),
        ("postgresql+asyncpg://host/db", True),
        ("w.json", False),
        ("/srv/w.json", False),
        ("C:\\flows\\w.json", False),
        ("://w.json", False),
    ],
)
def test_an_address_has_a_scheme(name: str, expected: bool) -> None:
    assert is_address(name) is expected


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("https://me:hunter2@host:8188/x", "https://***@host:8188/x"),
        ("https://hunter2@host/x", "https://***@host/x"),
        (
            "https://b.s3/w?X-Amz-Signature=hunter2&X-Amz-Credential=hunter2&v=1",
            "https://b.s3/w?X-Amz-Signature=***&X-Amz-Credential=***&v=1",
        ),
        ("https://civitai.example/w?token=hunter2", "https://civitai.example/w?token=***"),
        ("https://host/w?api_key=hunter2", "https://host/w?api_key=***"),
        ("/srv/w.json?token=x", "/srv/w.json?token=x"),
        ("http://127.0.0.1:8188", "http://127.0.0.1:8188"),
        ("http://me:hunter2@[bad/w?token=hunter2", "http://***@[bad/w?token=***"),
        ("postgresql://u:pa/hunter2@127.0.0.1:1/db", "postgresql://***@127.0.0.1:1/db"),
        ("postgresql://u:pa#hunter2@127.0.0.1:1/db", "postgresql://***@127.0.0.1:1/db"),
        ("mysql://u:pa?hunter2@127.0.0.1:1/db", "mysql://***@127.0.0.1:1/db"),
        ("http://u:1/hunter2@127.0.0.1:1", "http://***@127.0.0.1:1"),
        ("http://u:p@/hunter2?x=hunter2@127.0.0.1:1", "http://***@127.0.0.1:1"),
        ("http://hunter2@host/a@b", "http://***@b"),
        ("postgresql://h/db?password=pa#hunter2&x=1", "postgresql://h/db?password=***&x=1"),
        ("u:hunter2@127.0.0.1:1", "***@127.0.0.1:1"),
        ("h://u:hunter2@host", "***@host"),
        ("http:/u:hunter2@host", "***@host"),
        ("https://host/models@v2/w.json", "https://host/models@v2/w.json"),
        ("s3://bucket/models@v2/w.json", "s3://bucket/models@v2/w.json"),
        ("C:\\flows\\a@b.json", "C:\\flows\\a@b.json"),
        ("sqlite:////tmp/x.db", "sqlite:////tmp/x.db"),
        ("sqlite:///a:b@c.db", "sqlite:///a:b@c.db"),
        ("sqlite://u:hunter2@h/x.db", "sqlite://***@h/x.db"),
    ],
)
def test_a_secret_is_not_shown(address: str, shown: str) -> None:
    assert mask(address) == shown
    assert mask(shown) == shown


@given(st.sampled_from(["postgresql", "mysql", "http", "s3"]), st.text())
def test_no_password_gets_through(scheme: str, password: str) -> None:
    assert mask(f"{scheme}://comfy:{password}@db.example:5432/farm") == f"{scheme}://***@db.example:5432/farm"


def test_a_home_that_nobody_has_is_a_name_like_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")

    assert expanded(Path("~/farm")) == Path("/home/me/farm")
    assert expanded(Path("~nobody-of-this-name/farm")) == Path("~nobody-of-this-name/farm")


def test_the_last_part_names_a_file() -> None:
    assert base_name("/srv/flows/portrait.json") == "portrait.json"
    assert base_name("s3://bucket/flows/portrait.json") == "portrait.json"
    assert base_name("https://host/portrait.json?token=1") == "portrait.json"


@pytest.mark.parametrize(
    ("name", "other", "expected"),
    [
        ("/srv/jobs.jsonl", "w.json", "/srv/w.json"),
        ("jobs.jsonl", "w.json", "w.json"),
        ("/srv/jobs.jsonl", "/else/w.json", "/else/w.json"),
        ("/srv/jobs.jsonl", "s3://b/w.json", "s3://b/w.json"),
        ("s3://b/x/jobs.jsonl", "w.json", "s3://b/x/w.json"),
        ("https://h/x/jobs.jsonl?v=1", "w.json", "https://h/x/w.json?v=1"),
    ],
)
def test_a_name_is_taken_beside_the_file_that_says_it(name: str, other: str, expected: str) -> None:
    assert sibling(name, other) == expected


def test_a_file_is_read_up_to_its_limit(tmp_path: Path) -> None:
    file = tmp_path / "w.json"
    file.write_bytes(b"12345")

    assert read_bytes(str(file), limit_bytes=5) == b"12345"
    with pytest.raises(InputError, match="larger than 4 bytes"):
        read_bytes(str(file), limit_bytes=4)


def test_what_is_no_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"gone\.json: there is no such file"):
        read_bytes(str(tmp_path / "gone.json"), limit_bytes=9)
    with pytest.raises(InputError, match="is a folder"):
        read_bytes(str(tmp_path), limit_bytes=9)
    with pytest.raises(InputError, match="cannot be read"):
        read_bytes(str(tmp_path / ("x" * 5000)), limit_bytes=9)


def told(error: BaseException) -> str:
    """All that a traceback shows of what was raised, but for this file's own lines."""
    shown = "".join(traceback.format_exception(error))
    return "\n".join(line for line in shown.splitlines() if not line.startswith("    "))


@pytest.fixture(scope="module")
def web() -> Iterator[str]:
    """A web server that answers `/<status>` with that status."""

    async def answer(request: web_server.Request) -> web_server.Response:
        return web_server.Response(status=int(request.match_info["status"]), body=b"12345")

    app = web_server.Application()
    app.router.add_get("/{status}", answer)
    with serve(app) as url:
        yield url


def test_a_file_is_read_over_http(web: str) -> None:
    assert read_bytes(f"{web}/200", limit_bytes=5) == b"12345"


@pytest.mark.parametrize(
    ("status", "kind", "said"),
    [
        (404, InputError, "no such file"),
        (401, InputError, "access denied"),
        (403, InputError, "access denied"),
        (500, TryLater, "HTTP 500"),
        (503, TryLater, "HTTP 503"),
        (429, TryLater, "HTTP 429"),
    ],
)
def test_what_a_server_answers_says_whose_fault_it_is(
    web: str, status: int, kind: type[FarmError], said: str
) -> None:
    with pytest.raises(kind, match=said) as caught:
        read_bytes(f"{web}/{status}?token=hunter2", limit_bytes=9)

    assert "hunter2" not in told(caught.value)


def test_a_server_that_is_down_is_worth_another_try(free_address: str) -> None:
    with pytest.raises(TryLater, match="cannot be read") as caught:
        read_bytes(f"{free_address}/w.json?token=hunter2", limit_bytes=9)

    assert "hunter2" not in told(caught.value)


@pytest.mark.parametrize("address", ["foo://x/w.json", "gs://bucket/w.json"])
def test_a_scheme_that_nothing_here_opens_is_wrong_usage_with_those_that_work(address: str) -> None:
    with pytest.raises(UsageError, match=r"use a path, https:// or s3://"):
        read_bytes(address, limit_bytes=9)


def test_errors_of_the_libraries_below_are_told_as_ours() -> None:
    answer: Any = partial(aiohttp.ClientResponseError, cast(Any, None), ())
    for error, kind, said in (
        (NoCredentialsError(), InputError, "access denied; check the credentials"),
        (ProfileNotFound(profile="hunter2"), InputError, "access denied"),
        (EndpointConnectionError(endpoint_url="https://u:hunter2@h"), TryLater, "cannot be listed"),
        (ParamValidationError(report="hunter2"), UsageError, "is no such address"),
        (aiohttp.ServerDisconnectedError("hunter2"), TryLater, "cannot be listed"),
        (answer(status=403), InputError, "access denied"),
        (answer(status=502), TryLater, "HTTP 502"),
    ):
        with pytest.raises(kind, match=said) as caught, told_errors("s3://b/m?token=hunter2", "listed"):
            raise error
        assert "hunter2" not in told(caught.value)


def test_what_is_no_address_is_wrong_usage() -> None:
    with pytest.raises(UsageError, match="is no such address"):
        read_bytes("s3:///w.json", limit_bytes=9)


@pytest.fixture
def free_address() -> str:
    """Where nothing listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{probe.getsockname()[1]}"
