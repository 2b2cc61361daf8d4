"""What is learned of a file behind an address, and how a refusal is said."""

import base64
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from comfyfarm.cache.mirrors.probe import Probe, probe
from comfyfarm.errors import FarmError, InputError, TryLater

if TYPE_CHECKING:
    from infra.s3_server import S3Server
    from tests.core.cache.mirrors.conftest import Answers

_LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"ab" * 32 + b"\nsize 9\n"


@pytest.fixture(autouse=True)
def _no_tokens(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("HF_TOKEN", "HF_ENDPOINT", "CIVITAI_API_TOKEN", "CIVITAI_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))


async def test_a_range_tells_the_size_and_the_address_the_name(answers: "Answers") -> None:
    url = answers.give("/a/b%20c.pt", 206, b"x" * 512, Content_Range="bytes 0-511/123456")

    assert await probe(f"{url}?version=2") == Probe(size=123456, name="b c.pt")

    assert answers.asked[0]["range"] == "bytes=0-511"
    assert answers.asked[0]["path"].endswith("?version=2")


async def test_a_server_without_ranges_tells_the_size_too(answers: "Answers") -> None:
    assert (await probe(answers.give("/m.pt", 200, b"x" * 5000))).size == 5000


@pytest.mark.parametrize(
    ("header", "name"),
    [
        ('attachment; filename="real name.safetensors"', "real name.safetensors"),
        ("attachment; filename*=UTF-8''na%C3%AFve.pt", "naïve.pt"),
        ('attachment; filename="../../etc/passwd"', "passwd"),
        ('attachment; filename=".."', "1234"),
        ("attachment", "1234"),
    ],
)
async def test_the_servers_own_name_is_taken_and_never_a_path(
    answers: "Answers", header: str, name: str
) -> None:
    url = answers.give(
        "/api/download/models/1234", 206, b"x", Content_Range="bytes 0-0/1", Content_Disposition=header
    )
    assert (await probe(url)).name == name


async def test_a_login_of_the_address_is_sent_and_not_followed_elsewhere(answers: "Answers") -> None:
    answers.give("/real", 206, b"x", Content_Range="bytes 0-0/1")
    other = answers.address.replace("127.0.0.1", "localhost")
    url = answers.give("/moved", 302, Location=f"{other}/real")

    await probe(url.replace("://", "://me:pass@"))

    sent = [each.get("authorization") for each in answers.asked]
    assert sent == ["Basic " + base64.b64encode(b"me:pass").decode(), None]


@pytest.mark.parametrize(
    ("status", "kind", "words"),
    [(401, InputError, "set HF_TOKEN"), (403, InputError, "HF_TOKEN"), (404, InputError, "no such file"),
     (503, TryLater, "answered 503"), (429, TryLater, "answered 429")],
)  # fmt: skip
async def test_a_refusal_names_what_to_do(
    answers: "Answers", monkeypatch: pytest.MonkeyPatch, status: int, kind: type[FarmError], words: str
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", answers.address)
    url = answers.give("/org/repo/resolve/main/m.pt", status, b"{}")
    with pytest.raises(kind, match=words) as caught:
        await probe(f"{url}?download=true")
    assert str(status) in str(caught.value)


async def test_a_refused_signature_is_not_shown(answers: "Answers") -> None:
    url = answers.give("/m.pt", 403)
    with pytest.raises(InputError, match="may have expired") as caught:
        await probe(f"{url}?X-Amz-Signature=secret")
    assert "secret" not in str(caught.value)


async def test_a_login_page_and_a_pointer_are_no_models(answers: "Answers") -> None:
    page = answers.give("/page", 200, b"<p>Log in</p>", Content_Type="text/html; charset=utf-8")
    pointer = answers.give("/pointer", 206, _LFS, Content_Range=f"bytes 0-{len(_LFS) - 1}/{len(_LFS)}")
    with pytest.raises(InputError, match="web page"):
        await probe(page)
    with pytest.raises(InputError, match="Git LFS pointer"):
        await probe(pointer)


async def test_a_size_that_is_not_said_is_named(answers: "Answers") -> None:
    chunked = answers.give("/chunked", 200, b"1\r\nx\r\n0\r\n\r\n", Transfer_Encoding="chunked")
    with pytest.raises(TryLater, match="does not say how long"):
        await probe(chunked)
    unknown = answers.give("/unknown", 206, b"x", Content_Range="bytes 0-0/*")
    with pytest.raises(TryLater, match="does not say how long"):
        await probe(unknown)


async def test_a_server_that_is_not_there_is_named_without_its_secrets() -> None:
    with pytest.raises(TryLater, match="did not answer") as caught:
        await probe("http://me:secret@127.0.0.1:9/model?token=secret")
    assert "secret" not in str(caught.value)


async def test_an_object_tells_its_size(s3: "S3Server", monkeypatch: pytest.MonkeyPatch) -> None:
    from comfyfarm.cache.places.objects import open_place

    for name, value in s3.environment.items():
        monkeypatch.setenv(name, value)
    await open_place(f"s3://{s3.bucket}/probed").put_bytes("m.pt", b"12345")

    assert await probe(f"s3://{s3.bucket}/probed/m.pt") == Probe(size=5, name="m.pt")
    with pytest.raises(InputError, match="no such file"):
        await probe(f"s3://{s3.bucket}/probed/absent.pt")
