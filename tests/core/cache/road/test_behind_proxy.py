"""Behind an HTTP proxy: the other engine, with the same tokens."""

import http.client
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest

from comfyfarm.cache.hydrate import hydrate
from comfyfarm.cache.keeper.keeper import Keeper
from comfyfarm.cache.keeper.stats import read_stats
from comfyfarm.cache.mirrors.signed import signed_file
from comfyfarm.cache.supply import Supply
from comfyfarm.clock import SystemClock
from comfyfarm.errors import TransferError

if TYPE_CHECKING:
    from tests.core.cache.road.conftest import Act, Ask, Depot, ModelFile


@dataclass
class Proxy:
    """Passes requests on."""

    url: str = ""
    passed: list[str] = field(default_factory=list)
    """Addresses that it was asked for."""


class _ProxyHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    proxy: Proxy

    def log_message(self, format: str, *args: object) -> None:
        """Stay silent."""

    def do_GET(self) -> None:
        self.proxy.passed.append(self.path)
        parts = urlsplit(self.path)
        connection = http.client.HTTPConnection(parts.netloc, timeout=10)
        target = parts._replace(scheme="", netloc="").geturl()
        connection.request("GET", target, headers=dict(self.headers))
        answer = connection.getresponse()
        body = answer.read()
        connection.close()
        self.send_response(answer.status)
        for name in ("Content-Type", "Content-Range", "ETag"):
            if (value := answer.headers.get(name)) is not None:
                self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture
def proxy(monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    """The proxy of this environment."""
    state = Proxy()
    handler = type("Handler", (_ProxyHandler,), {"proxy": state})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        state.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"):
            monkeypatch.delenv(name, raising=False)
            monkeypatch.delenv(name.lower(), raising=False)
        monkeypatch.setenv("http_proxy", state.url)
        yield state
        server.shutdown()
        thread.join()


async def test_a_token_goes_through_the_proxy(
    proxy: Proxy,
    make_depot: Callable[..., "Depot"],
    file: "ModelFile",
    keeper: Keeper,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    depot = make_depot(file)
    monkeypatch.setenv("HF_ENDPOINT", depot.url)
    monkeypatch.setenv("HF_TOKEN", "hf_5ecret")
    counted: list[int] = []

    await hydrate(
        [file.at(f"{depot.url}/{file.sha256}")],
        supply=Supply(),
        keeper=keeper,
        on_bytes=lambda _, count: counted.append(count),
    )

    assert keeper.blobs.path(file.sha256).read_bytes() == file.data
    assert {ask.authorization for ask in depot.asks} == {"Bearer hf_5ecret"}
    assert len(proxy.passed) == len(depot.asks)
    assert depot.sent_bytes() == sum(counted) == file.size
    assert read_stats(keeper).fetched_bytes == {"web": file.size}


async def test_a_password_in_the_address_goes_through_the_proxy(
    proxy: Proxy, make_depot: Callable[..., "Depot"], file: "ModelFile", keeper: Keeper
) -> None:
    depot = make_depot(file)
    address = f"{depot.url}/{file.sha256}?sig=1%2F2".replace("//", "//user:p%40ss@", 1)

    await hydrate([file.at(address)], supply=Supply(), keeper=keeper)

    assert {ask.authorization for ask in depot.asks} == {"Basic dXNlcjpwQHNz"}
    assert {ask.path.partition("?")[2] for ask in depot.asks} == {"sig=1%2F2"}
    assert keeper.blobs.path(file.sha256).read_bytes() == file.data
    assert proxy.passed


async def test_peers_are_asked_without_the_proxy(
    proxy: Proxy, make_depot: Callable[..., "Depot"], file: "ModelFile", keeper: Keeper
) -> None:
    depot = make_depot(file)

    await hydrate([file], supply=Supply(peers=(depot.url,)), keeper=keeper)

    assert keeper.blobs.path(file.sha256).read_bytes() == file.data
    assert proxy.passed == []


async def test_a_source_that_fails_behind_the_proxy_is_followed_by_the_next(
    proxy: Proxy, make_depot: Callable[..., "Depot"], file: "ModelFile", act: type["Act"], keeper: Keeper
) -> None:
    bad, good = make_depot(file), make_depot(file)
    bad.act = lambda ask: act(flips=0)
    addresses = [f"{depot.url}/{file.sha256}?sig=5ecret" for depot in (bad, good)]

    await hydrate([file.at(*addresses)], supply=Supply(), keeper=keeper)
    keeper.evict([file.sha256])
    with pytest.raises(TransferError, match="other bytes") as caught:
        await hydrate([file.at(addresses[0])], supply=Supply(), keeper=keeper)

    assert "5ecret" not in str(caught.value)
    assert proxy.passed


async def test_a_signed_address_that_expired_is_renewed_behind_the_proxy(
    proxy: Proxy,
    make_depot: Callable[..., "Depot"],
    file: "ModelFile",
    act: type["Act"],
    keeper: Keeper,
    tmp_path: Path,
) -> None:
    depot = make_depot(file)
    place = tmp_path / "signed.json"

    def write(signature: str) -> None:
        address = f"{depot.url}/{file.sha256}?X-Amz-Signature={signature}"
        listed = signed_file({file.sha256: address}, expires_at=SystemClock().now() + 3600)
        (tmp_path / "new").write_text(listed.text())
        (tmp_path / "new").replace(place)

    def expiring(ask: "Ask") -> "Act":
        if "old" not in ask.path:
            return act()
        write("fresh")
        return act(status=403, body=b"")

    depot.act = expiring
    write("old")
    await hydrate([file], supply=Supply(signed=str(place)), keeper=keeper)

    assert keeper.blobs.path(file.sha256).read_bytes() == file.data
    assert any("fresh" in address for address in proxy.passed)
