"""A registry and a git server over real sockets."""

import functools
import http.server
import json
import os
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

from comfyfarm.errors import TryLater, UsageError
from comfyfarm.ids import NodeId
from comfyfarm.lock.online_packs import resolve_online
from comfyfarm.lock.registry import ask_registry
from comfyfarm.lock.remotes import remote_releases
from comfyfarm.workflow.file_node import FileNode, PackHint
from comfyfarm.workflow.packs.index import PackIndex
from comfyfarm.workflow.schema import NodeSchema


class Server(http.server.SimpleHTTPRequestHandler):
    """Serves a folder as git's plain protocol wants it, and the registry's answers from `answers`."""

    answers: ClassVar[dict[str, tuple[int, Any]]] = {}
    asked: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        self.asked.append(self.path)
        if not self.path.startswith("/nodes/"):
            super().do_GET()
            return
        status, raw = self.answers.get(self.path, (404, {}))
        body = raw if isinstance(raw, bytes) else json.dumps(raw).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.setenv(name, "127.0.0.1")
    monkeypatch.setattr(Server, "answers", {})
    monkeypatch.setattr(Server, "asked", [])
    server = http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(Server, directory=str(tmp_path))
    )
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def repository(site: str, tmp_path: Path) -> tuple[str, dict[str, str]]:
    """A repository on that server, and the commits of its tags."""
    folder = tmp_path / "a" / "One"
    folder.mkdir(parents=True)
    kept = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    names = {
        f"GIT_{role}_{key}": "t@example.org" for role in ("AUTHOR", "COMMITTER") for key in ("NAME", "EMAIL")
    }
    env = {**kept, **names, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}

    def git(*arguments: str) -> str:
        done = subprocess.run(
            ["git", *arguments], cwd=folder, env=env, check=True, capture_output=True, text=True
        )
        return done.stdout.strip()

    git("init", "--bare", "-b", "main")
    tree = git("hash-object", "-t", "tree", "-w", os.devnull)
    commits = [git("commit-tree", tree, "-m", str(number)) for number in range(2)]
    git("update-ref", "refs/heads/main", commits[1])
    git("tag", "v1.0.0", commits[0])
    git("tag", "-a", "1.1.0", "-m", "with a message", commits[1])
    git("tag", "stable", commits[1])
    git("update-server-info")
    return f"{site}/a/One", {"1.0.0": commits[0], "1.1.0": commits[1]}


def node(ver: str | None = "1.1.0") -> FileNode:
    return FileNode(NodeId("1"), "X", {}, pack=PackHint(cnr_id="comfyui-one", ver=ver))


def test_a_repository_says_the_commits_of_its_releases(repository: tuple[str, dict[str, str]]) -> None:
    url, commits = repository

    assert [dict(pack.releases) for pack in remote_releases([url, url]).installed] == [commits]


def test_a_repository_that_is_not_there_has_no_releases(site: str) -> None:
    assert [dict(pack.releases) for pack in remote_releases([f"{site}/a/none"]).installed] == [{}]


@pytest.mark.parametrize("url", ["file:///etc", "ext::sh -c true", "--upload-pack=touch x"])
def test_only_web_addresses_are_asked(url: str, tmp_path: Path) -> None:
    assert [dict(pack.releases) for pack in remote_releases([url]).installed] == [{}]


def test_without_git_the_message_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")

    with pytest.raises(UsageError, match="git is not installed"):
        remote_releases(["https://github.com/a/b"])


def test_a_registry_says_what_an_id_means(site: str) -> None:
    Server.answers["/nodes/One%2Fx"] = (200, {"repository": "https://github.com/a/One.git"})
    index = ask_registry(f"{site}/", ["One/x", "two"])

    assert index.named("one/X") == ("https://github.com/a/One",)
    assert index.named("two") == ()


@pytest.mark.parametrize("answer", [b"<html>", {}, {"repository": 3}, {"repository": "no address"}, []])
def test_an_answer_without_a_repository_says_nothing(site: str, answer: Any) -> None:
    Server.answers["/nodes/one"] = (200, answer)

    assert ask_registry(site, ["one"]) == PackIndex()


def test_a_registry_that_fails_is_to_be_tried_later(site: str) -> None:
    Server.answers["/nodes/one"] = (503, {})

    with pytest.raises(TryLater, match="answered 503 for 'one'"):
        ask_registry(site, ["one"])
    with pytest.raises(TryLater, match="did not answer"):
        ask_registry("http://me:secret@127.0.0.1:9", ["one"])


def test_a_registry_has_to_be_an_address() -> None:
    with pytest.raises(UsageError, match="--registry"):
        ask_registry("api", ["one"])


def test_a_release_is_pinned_by_way_of_the_registry_and_the_repository(
    repository: tuple[str, dict[str, str]], site: str
) -> None:
    url, commits = repository
    Server.answers["/nodes/comfyui-one"] = (200, {"repository": url})
    schema = NodeSchema.shipped()
    found = resolve_online([node()], schema, index=PackIndex(), choices={}, registry=site, ask_remotes=True)

    assert [(row.url, row.commit) for row in found.packs] == [(url, commits["1.1.0"])]
    assert found.findings == ()


def test_nothing_is_asked_for_what_is_known(site: str) -> None:
    known = FileNode(NodeId("1"), "X", {}, pack=PackHint(aux_id="a/b", ver="a" * 40))
    resolve_online(
        [known], NodeSchema.shipped(), index=PackIndex(), choices={}, registry=site, ask_remotes=True
    )

    assert Server.asked == []


def test_without_permission_nothing_is_asked(site: str) -> None:
    found = resolve_online([node()], NodeSchema.shipped(), index=PackIndex(), choices={})

    assert [row.url for row in found.packs] == [None]
    assert Server.asked == []
