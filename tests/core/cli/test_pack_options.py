"""The options that say where packs are known from."""

import http.server
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from comfyfarm.cli.pack_options import PackSources, check_web_address, known_index, load_project, pack_options
from comfyfarm.errors import InputError, ServerUnreachable, UsageError
from comfyfarm.lock.project_file import ProjectFile
from comfyfarm.workflow.packs.index import InstalledPack, PackIndex

ONE = "https://github.com/a/One"
COMMIT = "a" * 40


@pytest.fixture
def manager() -> Iterator[tuple[str, dict[str, Any]]]:
    """A server with some of the Manager's routes; the dictionary says which and what they answer."""
    answers: dict[str, Any] = {}

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = json.dumps(answers.get(self.path)).encode()
            self.send_response(200 if self.path in answers else 404)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Say nothing."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", answers
    server.shutdown()
    server.server_close()
    thread.join()


def test_without_options_nothing_is_known() -> None:
    assert known_index(PackSources()) == PackIndex()


def test_class_maps_checkouts_and_a_hosts_list_are_one_index(tmp_path: Path) -> None:
    (tmp_path / "map.json").write_text(json.dumps({ONE: [["X"], {}]}))
    (tmp_path / "other.json").write_text(json.dumps({"https://github.com/b/two": [["X"], {}]}))
    (tmp_path / "snapshot.json").write_text(json.dumps({"cnr_custom_nodes": {"three": "1.0.0"}}))
    (tmp_path / "custom_nodes" / "four").mkdir(parents=True)
    maps = (str(tmp_path / "map.json"), str(tmp_path / "other.json"))
    index = known_index(PackSources(maps, str(tmp_path / "custom_nodes"), str(tmp_path / "snapshot.json")))

    assert index.claimants("X") == (ONE, "https://github.com/b/two")
    assert [pack.folder for pack in index.installed] == ["four", "three"]


@pytest.mark.parametrize("prefix", ["", "/v2"])
def test_a_server_with_the_manager_is_asked_for_its_packs(
    manager: tuple[str, dict[str, Any]], prefix: str
) -> None:
    url, answers = manager
    answers[f"{prefix}/customnode/installed"] = {"One": {"ver": "1.0.0", "cnr_id": "one", "aux_id": None}}
    answers[f"{prefix}/snapshot/get_current"] = {"git_custom_nodes": {ONE: {"hash": COMMIT}}}

    assert known_index(PackSources(schema_from=url)).installed == (
        InstalledPack("One", id="one", version="1.0.0"),
        InstalledPack("One", ONE, COMMIT),
    )


def test_a_server_without_the_manager_says_nothing(manager: tuple[str, dict[str, Any]]) -> None:
    url, answers = manager
    answers["/v2/customnode/installed"] = ["something else"]

    assert known_index(PackSources(schema_from=url)) == PackIndex()


def test_a_server_that_is_not_there_is_an_error() -> None:
    with pytest.raises(ServerUnreachable):
        known_index(PackSources(schema_from="http://127.0.0.1:9"))


def test_a_class_map_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        known_index(PackSources((str(tmp_path / "none.json"),)))


def test_the_project_file_is_the_named_one_else_the_nearest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a").mkdir()
    assert load_project(None, str(tmp_path / "a" / "w.json")) == ProjectFile()

    (tmp_path / "comfyfarm.toml").write_text(f'[packs]\nX = "{ONE}"\n')
    for workflow in (str(tmp_path / "a" / "w.json"), "a/w.json", "https://example.org/w.json", None):
        assert load_project(None, workflow).packs == {"X": ONE}

    (tmp_path / "other.toml").write_text("[packs]\n")
    assert load_project("other.toml", "a/w.json") == ProjectFile()


def test_a_flaw_in_the_project_file_names_it(tmp_path: Path) -> None:
    (tmp_path / "comfyfarm.toml").write_text("[pack]\n")

    with pytest.raises(UsageError, match=r"comfyfarm\.toml: pack: no such key"):
        load_project(None, str(tmp_path / "w.json"))


def test_the_options_are_parameters_of_a_command() -> None:
    @click.command
    @pack_options
    def command(**given: Any) -> None:
        click.echo(json.dumps(given))

    arguments = [
        "--node-map",
        "a",
        "--node-map",
        "b",
        "--custom-nodes",
        "c",
        "--host-packs",
        "d",
        "--config",
        "e",
    ]
    done = CliRunner().invoke(command, arguments)

    assert json.loads(done.stdout) == {
        "node_map": ["a", "b"],
        "custom_nodes": "c",
        "host_packs": "d",
        "config": "e",
    }


def test_a_project_file_that_is_not_there_is_wrong_set_up(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"gone\.toml: there is no such file"):
        load_project(str(tmp_path / "gone.toml"))


@pytest.mark.parametrize("address", ["", "nourl", "ftp://h", "http://", "http://h:x", "http://[h"])
def test_what_can_be_no_server_is_refused_before_it_is_asked(address: str) -> None:
    with pytest.raises(UsageError, match=r"--registry .* is no address"):
        check_web_address("--registry", address)


def test_addresses_of_servers_pass_and_passwords_are_not_shown() -> None:
    check_web_address("--registry", "https://u:hunter2@h:8188/x")
    check_web_address("--registry", None)
    with pytest.raises(UsageError) as caught:
        check_web_address("--registry", "http://u:hunter2@h:x")
    assert "hunter2" not in str(caught.value)
