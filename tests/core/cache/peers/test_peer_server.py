"""A cache's server, asked over real sockets."""

import contextlib
import hashlib
import logging
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from comfyfarm.cache.blobs import BlobStore, blob_key
from comfyfarm.cache.held_folder import hold_folder
from comfyfarm.cache.peers import handler
from comfyfarm.cache.peers import server as server_module
from comfyfarm.cache.peers.server import open_server, serving
from comfyfarm.errors import UsageError


def path_of(file: Any) -> str:
    return f"/{blob_key(file.sha256)}"


@contextlib.contextmanager
def connected(url: str) -> Iterator[socket.socket]:
    parts = urlsplit(url)
    with socket.create_connection((parts.hostname, parts.port), timeout=10) as connection:
        yield connection


def read_all(connection: socket.socket) -> bytes:
    found = b""
    while piece := connection.recv(1 << 16):
        found += piece
    return found


def raw(url: str, request: str) -> bytes:
    """What the server says to these bytes; it is told that nothing follows."""
    with connected(url) as connection:
        connection.sendall(request.encode())
        connection.shutdown(socket.SHUT_WR)
        return read_all(connection)


def test_a_whole_file_is_given_with_its_hash_as_tag(host: Any, file: Any) -> None:
    host.put(file)

    seen = host.ask(path_of(file))

    assert (seen.status, seen.body) == (200, file.data)
    assert seen.headers["ETag"] == f'"{file.sha256}"'
    assert seen.headers["Accept-Ranges"] == "bytes"
    assert seen.headers["X-Comfyfarm-Peer"] == host.own_id


@pytest.mark.parametrize(
    ("wanted", "start", "stop"),
    [("0-0", 0, 1), ("10-99", 10, 100), ("99990-", 99_990, 100_000), ("-5", 99_995, 100_000)],
)
def test_a_range_is_given_as_such(host: Any, file: Any, wanted: str, start: int, stop: int) -> None:
    host.put(file)

    seen = host.ask(path_of(file), Range=f"bytes={wanted}", If_Match=f'"{file.sha256}"')

    assert (seen.status, seen.body) == (206, file.data[start:stop])
    assert seen.headers["Content-Range"] == f"bytes {start}-{stop - 1}/100000"


def test_a_range_outside_the_file_is_refused(host: Any, file: Any) -> None:
    host.put(file)

    seen = host.ask(path_of(file), Range="bytes=100000-")

    assert (seen.status, seen.body) == (416, b"")
    assert seen.headers["Content-Range"] == "bytes */100000"


def test_another_tag_than_the_files_gives_nothing(host: Any, file: Any) -> None:
    host.put(file)

    assert host.ask(path_of(file), If_Match='"other"').status == 412
    assert host.ask(path_of(file), Range="bytes=0-0", If_Range='"other"').status == 200


def test_a_head_tells_the_size_without_the_bytes(host: Any, file: Any) -> None:
    host.put(file)

    seen = host.ask(path_of(file), method="HEAD", Range="bytes=0-0")

    assert (seen.status, seen.body, seen.headers["Content-Length"]) == (200, b"", "100000")


def test_an_empty_file_is_given(host: Any, make_file: Any) -> None:
    empty = make_file(1, size=0)
    host.put(empty)

    assert host.ask(path_of(empty)).status == 200
    assert host.ask(path_of(empty), Range="bytes=0-0").status == 416


def test_one_connection_serves_request_after_request(host: Any, file: Any) -> None:
    host.put(file)
    request = (
        f"GET {path_of(file)} HTTP/1.1\r\nAuthorization: Bearer {host.token}\r\nRange: bytes=0-3\r\n\r\n"
    )

    found = raw(host.url, request * 3)

    assert found.count(b"HTTP/1.1 206") == 3
    assert found.count(b"\r\n\r\n" + file.data[:4]) == 3


@pytest.mark.parametrize("token", [None, "", "let-me-i", "let-me-in2"])
@pytest.mark.parametrize("path", ["/whoami", "/metrics", "/sha256/ab", "/"])
def test_who_does_not_show_the_token_learns_nothing(host: Any, path: str, token: str | None) -> None:
    seen = host.ask(path, token=token)

    assert (seen.status, seen.body) == (401, b"")
    assert seen.headers["WWW-Authenticate"] == "Bearer"


def test_without_a_token_a_loopback_server_asks_for_none(make_host: Any, file: Any) -> None:
    host = make_host()
    host.put(file)

    assert host.ask(path_of(file), token=None).body == file.data


@pytest.mark.parametrize(
    "path",
    ["/sha256", "/sha256/", "/sha256/{two}", "/sha256/{two}/", "/{key}/", "/{key}/..", "/sha256/../peer-id",
     "/../peer-id", "/peer-id", "/sha256/{two}/../../peer-id", "/%2e%2e/peer-id", "/quarantine/{sha}",
     "/.partial/{sha}/data", "//{key}/../../../etc/passwd", "/{key}%00", "/{key}?token=x", "http://x/{key}"],
)  # fmt: skip
def test_no_other_path_leads_anywhere(host: Any, file: Any, path: str) -> None:
    host.put(file)
    for other in ("quarantine", f".partial/{file.sha256}"):
        (host.blobs.root / other).mkdir(parents=True)
    (host.blobs.root / "quarantine" / file.sha256).write_bytes(b"bad")
    (host.blobs.root / ".partial" / file.sha256 / "data").write_bytes(b"half")

    seen = host.ask(path.format(key=blob_key(file.sha256), two=file.sha256[:2], sha=file.sha256))

    assert (seen.status, seen.body) == (404, b"")


def test_what_is_no_regular_file_is_not_there(host: Any, file: Any, make_file: Any, tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"secret")
    link, folder = host.blobs.path(file.sha256), host.blobs.path(make_file(2).sha256)
    link.parent.mkdir(parents=True)
    link.symlink_to(tmp_path / "secret")
    folder.mkdir(parents=True)

    assert host.ask(path_of(file)).status == 404
    assert host.ask(path_of(make_file(2))).status == 404


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS"])
def test_nothing_can_be_changed(host: Any, file: Any, method: str) -> None:
    host.put(file)

    assert host.ask(path_of(file), method=method).status == 501
    assert host.blobs.has(file.sha256, size=file.size)


@pytest.mark.parametrize(
    "request_line", ["garbage", "GET", "GET / HTTP/9.9", "GET " + "/" * 70_000 + " HTTP/1.1"]
)
def test_garbage_is_answered_with_an_error(host: Any, request_line: str) -> None:
    with contextlib.suppress(ConnectionResetError):
        found = raw(host.url, f"{request_line}\r\n\r\n")
        assert b" 200 " not in found

    assert host.ask("/whoami").status == 200


def test_a_body_is_not_taken_for_the_next_request(host: Any) -> None:
    inner = f"GET /whoami HTTP/1.1\r\nAuthorization: Bearer {host.token}\r\n\r\n"
    found = raw(host.url, f"GET / HTTP/1.1\r\nContent-Length: {len(inner)}\r\n\r\n{inner}")

    assert found.count(b"HTTP/1.1") == 1


def test_a_file_on_its_way_is_announced(host: Any, file: Any) -> None:
    held = hold_folder(host.blobs.root / ".partial" / file.sha256, stop=lambda: None)
    (held.path / "data").write_bytes(b"x")

    seen = host.ask(path_of(file), method="HEAD")
    held.release()

    assert (seen.status, seen.headers["Retry-After"]) == (503, "1")
    assert seen.headers["X-Comfyfarm-Coming"] == "0"
    assert host.ask(path_of(file)).status == 404


def test_a_file_evicted_while_it_is_given_arrives_whole(host: Any, make_file: Any) -> None:
    file = make_file(3, size=32 << 20)  # more than the buffers of a connection hold
    path = host.put(file)
    digest = hashlib.sha256()

    with connected(host.url) as connection:
        connection.sendall(
            f"GET {path_of(file)} HTTP/1.0\r\nAuthorization: Bearer {host.token}\r\n\r\n".encode()
        )
        head, _, body = connection.recv(1 << 16).partition(b"\r\n\r\n")
        path.unlink()
        digest.update(body)
        while body := connection.recv(1 << 20):
            digest.update(body)

    assert head.startswith(b"HTTP/1.1 200")
    assert digest.hexdigest() == file.sha256
    assert host.ask(path_of(file)).status == 404


def test_one_connection_too_many_is_told_to_come_again(make_host: Any, file: Any) -> None:
    host = make_host(most_connections=2)
    host.put(file)

    with connected(host.url) as one, connected(host.url) as two:
        for connection in (one, two):
            connection.sendall(b"HEAD /whoami HTTP/1.1\r\n\r\n")
            assert connection.recv(1 << 10).startswith(b"HTTP/1.1 200")
        refused = host.ask(path_of(file))
        one.close()
        later = wait_for_200(host, path_of(file))

    assert (refused.status, refused.headers["Retry-After"]) == (503, "1")
    assert "X-Comfyfarm-Coming" not in refused.headers
    assert later.body == file.data


def wait_for_200(host: Any, path: str) -> Any:
    """The answer, once the server has noticed that a connection is free."""
    while (seen := host.ask(path)).status != 200:
        assert seen.status == 503
    return seen


def test_a_peer_that_goes_away_in_the_middle_frees_its_place(make_host: Any, make_file: Any) -> None:
    host = make_host(most_connections=1)
    file = make_file(3, size=32 << 20)
    host.put(file)
    with connected(host.url) as connection:
        connection.sendall(f"GET {path_of(file)} HTTP/1.1\r\n\r\n".encode())
        connection.recv(10)

    assert wait_for_200(host, "/whoami").status == 200
    assert b"Traceback" not in host.ask("/metrics").body


def test_a_silent_connection_is_closed(make_host: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    # Patched because nobody wants to wait for the real half minute.
    monkeypatch.setattr(handler.PeerHandler, "timeout", 0.1)

    with connected(make_host().url) as connection:
        assert connection.recv(1) == b""


def test_metrics_count_bytes_and_answers(host: Any, file: Any) -> None:
    host.put(file)
    host.ask(path_of(file), Range="bytes=0-9")
    host.ask(path_of(file))
    host.ask("/nothing")

    seen = host.ask("/metrics")

    lines = seen.body.decode().splitlines()
    assert seen.headers["Content-Type"].startswith("text/plain; version=0.0.4")
    assert "comfyfarm_peer_sent_bytes_total 100010" in lines
    assert 'comfyfarm_peer_requests_total{status="206"} 1' in lines
    assert 'comfyfarm_peer_requests_total{status="404"} 1' in lines


def test_metrics_of_the_cache_itself_are_added_where_they_can_be_read(tmp_path: Path) -> None:
    answers: Iterator[str | OSError] = iter(["cache_files 3\n", OSError(5, "Input/output error")])

    def more() -> str:
        answer = next(answers)
        if isinstance(answer, OSError):
            raise answer
        return answer

    server = open_server(BlobStore(tmp_path), host="127.0.0.1", port=0, token=None, more_metrics=more)
    with serving(server) as url:
        first, second = (raw(url, "GET /metrics HTTP/1.0\r\n\r\n") for _ in range(2))

    assert first.endswith(b"\ncache_files 3\n")
    assert b"comfyfarm_peer_sent_bytes_total 0\n" in second


def test_whoami_says_the_caches_id(host: Any) -> None:
    assert host.ask("/whoami").body.decode() == f'{{"id": "{host.own_id}"}}'


def test_nothing_that_a_client_sends_is_logged(host: Any, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        host.ask("/?token=hunter2", token="hunter2")
        host.ask("/whoami")
        raw(host.url, "hunter2 hunter2 hunter2 hunter2\r\n\r\n")

    assert "hunter2" not in caplog.text
    assert "let-me-in" not in caplog.text
    assert "let-me-in" not in repr(host.server._served)


@pytest.mark.parametrize("place", ["0.0.0.0", "::"])  # noqa: S104 - which is what is refused
def test_a_server_for_all_without_a_token_does_not_start(tmp_path: Path, place: str) -> None:
    with pytest.raises(UsageError, match="set COMFYFARM_PEER_TOKEN"):
        open_server(BlobStore(tmp_path), host=place, port=0, token=None)


def test_a_server_for_all_with_a_token_starts(tmp_path: Path) -> None:
    server = open_server(BlobStore(tmp_path), host="0.0.0.0", port=0, token="secret")  # noqa: S104

    assert server.url.startswith("http://0.0.0.0:")
    server.end()


def test_a_port_that_is_taken_is_said(host: Any, tmp_path: Path) -> None:
    port = urlsplit(host.url).port

    with pytest.raises(UsageError, match=f"port {port}: the port is taken; choose another with --port"):
        open_server(BlobStore(tmp_path), host="127.0.0.1", port=port or 0, token=None)


def test_a_host_that_is_not_ours_is_said(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"cannot listen at 192\.0\.2\.1"):
        open_server(BlobStore(tmp_path), host="192.0.2.1", port=0, token="secret")


def test_a_name_that_is_none_is_said(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"cannot listen at 'a\.\.b': no name of a host"):
        open_server(BlobStore(tmp_path), host="a..b", port=0, token="secret")


def test_of_many_connections_too_many_the_last_are_just_closed(
    make_host: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Patched because dozens of connections would have to be refused at the same moment.
    monkeypatch.setattr(server_module, "_MOST_REFUSALS", 0)

    with connected(make_host(most_connections=0).url) as connection:
        assert connection.recv(1) == b""


def test_a_machine_without_threads_to_spare_serves_the_next_one(
    make_host: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = threading.Thread.start

    def start_others(thread: threading.Thread) -> None:
        if thread.name == "peer":
            raise RuntimeError("can't start new thread")
        start(thread)

    host = make_host(most_connections=1)
    # Patched because nobody wants to use up the machine's threads; before the server can see the connection.
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", start_others)
        with connected(host.url) as connection:
            assert connection.recv(1) == b""

    assert host.ask("/whoami").status == 200


def test_a_fault_of_ours_ends_one_connection_and_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def broken() -> str:
        raise ValueError

    server = open_server(BlobStore(tmp_path), host="127.0.0.1", port=0, token=None, more_metrics=broken)
    with serving(server) as url:
        assert raw(url, "GET /metrics HTTP/1.1\r\n\r\n") == b""
        assert b" 200 " in raw(url, "GET /whoami HTTP/1.1\r\n\r\n")

    assert "a connection ended: ValueError" in caplog.text


def test_a_cache_that_cannot_be_written_is_served(tmp_path: Path, file: Any) -> None:
    (tmp_path / "file").touch()

    server = open_server(BlobStore(tmp_path / "file" / "cache"), host="127.0.0.1", port=0, token=None)

    assert server.url.startswith("http://127.0.0.1:")
    server.end()


def test_the_end_closes_connections_that_are_being_served(
    make_host: Callable[..., Any], make_file: Any, tmp_path: Path
) -> None:
    file = make_file(3, size=32 << 20)
    blobs = BlobStore(tmp_path / "served")
    blobs.path(file.sha256).parent.mkdir(parents=True)
    blobs.path(file.sha256).write_bytes(file.data)
    before = set(threading.enumerate())

    with serving(open_server(blobs, host="127.0.0.1", port=0, token=None)) as url:
        stack = contextlib.ExitStack()
        connection = stack.enter_context(connected(url))
        connection.sendall(f"GET {path_of(file)} HTTP/1.1\r\n\r\n".encode())
        connection.recv(10)

    assert set(threading.enumerate()) <= before
    with stack, contextlib.suppress(ConnectionError):
        assert len(read_all(connection)) < file.size
