"""What deploy.py decides before it asks anyone."""

from pathlib import Path

import pytest
from click.testing import CliRunner
from pydantic import SecretStr

from comfyfarm.control.prefect_server import SETTINGS
from comfyfarm.errors import UsageError
from deployments.deploy import main
from deployments.description import read_description
from deployments.farm_blocks import place_fields
from deployments.wanted import Wanted, absolute
from flows.attempt_cap import STARTS, refuse_endless_restart
from flows.named_places import address_or_json
from flows.server_settings import missing

WANTED = Wanted(host="gpu1", pool="gpu1", servers=("http://s",), ledger=SecretStr("sqlite:///x"), out="/out")


def test_without_a_prefect_server_it_says_what_to_set(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    monkeypatch.setenv("COMFYFARM_STATE_DIR", str(tmp_path))

    done = CliRunner().invoke(main, ["--server", "http://127.0.0.1:9", "--out", "o"])

    assert done.exit_code == 2
    assert "PREFECT_API_URL" in done.output


@pytest.mark.parametrize("server", ["http://user:hunter2@127.0.0.1:9", "http://hunter2@127.0.0.1:9"])
def test_a_password_in_a_servers_address_is_refused_before_anything_is_asked(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, server: str
) -> None:
    monkeypatch.setenv("PREFECT_API_URL", "http://127.0.0.1:9/api")  # nobody is there: asking ends with 3
    monkeypatch.setenv("COMFYFARM_STATE_DIR", str(tmp_path))

    done = CliRunner().invoke(main, ["--server", server, "--ledger", f"sqlite:///{tmp_path}/l.db"])

    assert done.exit_code == 2
    assert "http://***@127.0.0.1:9" in done.output
    assert "COMFYFARM_SERVER_AUTH=user:password" in done.output
    assert "hunter2" not in done.output


def test_the_description_is_filled_in_with_what_is_wanted() -> None:
    render, nightly, prewarm = read_description(WANTED.variables()).deployments

    assert render.parameters["mirror"] == ""
    assert render.parameters["host"] == render.work_pool.name == "gpu1"
    assert nightly.schedules[0].timezone == prewarm.schedules[0].timezone == "UTC"
    with_mirror = WANTED.model_copy(update={"mirror": "s3://models", "time_zone": "Europe/Berlin"})
    render, nightly, prewarm = read_description(with_mirror.variables()).deployments
    assert prewarm.parameters == {"host": "gpu1", "mirror": "mirror/default"}
    assert render.parameters["mirror"] == "mirror/default"
    assert nightly.schedules[0].timezone == "Europe/Berlin"


def test_paths_become_whole_and_addresses_stay() -> None:
    assert absolute("out") == str(Path.cwd() / "out")
    assert absolute("s3://bucket/out") == "s3://bucket/out"


def test_only_a_bucket_takes_the_credentials_of_the_environment() -> None:
    environ = {
        "AWS_ACCESS_KEY_ID": "id",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_ENDPOINT_URL": "http://s3",
        "AWS_REGION": "eu-1",
    }

    fields = place_fields("s3://bucket/out", environ)

    assert (fields["access_key"], fields["endpoint"], fields["region"]) == ("id", "http://s3", "eu-1")
    assert "'secret'" not in str(fields)
    # A folder needs none: what the block had before goes.
    gone = dict.fromkeys(("endpoint", "access_key", "secret_key", "session_token"))
    assert place_fields("/out", environ) == {"address": "/out", **gone}
    assert place_fields("s3://bucket/out", {}) == {"address": "s3://bucket/out"}, "as in the dashboard"


def test_the_defaults_of_a_prefect_server_are_warned_of_and_ours_are_not() -> None:
    defaults = {
        "server": {
            "concurrency": {"lease_storage": "prefect.server.concurrency.lease_storage.memory"},
            "tasks": {"tag_concurrency_slot_wait_seconds": 10.0},
            "database": {"driver": "sqlite+aiosqlite"},
            "services": {"task_run_recorder": {"batch_size": 1}, "db_vacuum": {"enabled": ["events"]}},
        }
    }
    ours = {
        "server": {
            "concurrency": {"lease_storage": SETTINGS["PREFECT_SERVER_CONCURRENCY_LEASE_STORAGE"]},
            "tasks": {"tag_concurrency_slot_wait_seconds": 0.2},
            "services": {
                "task_run_recorder": {"batch_size": 50},
                "db_vacuum": {"enabled": ["events", "flow_runs", "orphans"]},
            },
        }
    }

    assert len(missing(defaults)) == 5
    assert missing(ours) == ()


def test_a_run_that_died_too_often_refuses_to_start() -> None:
    refuse_endless_restart(STARTS)

    with pytest.raises(UsageError, match=f"started {STARTS + 1} times"):
        refuse_endless_restart(STARTS + 1)


def test_pasted_json_becomes_the_graph_and_an_address_stays() -> None:
    assert address_or_json(' {"1": {}} ') == {"1": {}}
    assert address_or_json(" s3://b/w.json\n") == "s3://b/w.json"
    assert address_or_json({"1": {}}) == {"1": {}}
    with pytest.raises(Exception, match="no JSON"):
        address_or_json('{"1": ')
