"""Which ledger a command means."""

from collections.abc import Callable
from pathlib import Path

import pytest
from pydantic import SecretStr

from comfyfarm.errors import UsageError
from comfyfarm.farm.ledgers import known_ledger, render_backends
from comfyfarm.settings import FarmSettings, read_settings

SILENT: Callable[[str], None] = lambda _line: None  # noqa: E731


def settings(folder: Path, **more: str) -> FarmSettings:
    return read_settings({"COMFYFARM_STATE_DIR": str(folder / "state"), **more})


def test_a_local_render_keeps_its_ledger_in_the_state_directory(tmp_path: Path) -> None:
    with render_backends(settings(tmp_path), None, local=True, on_line=SILENT) as found:
        assert found.ledger_url.get_secret_value() == f"sqlite:///{tmp_path / 'state' / 'ledger.db'}"
        assert found.prefect_api_url is None


def test_a_named_ledger_wins_over_the_environment(tmp_path: Path) -> None:
    env = settings(tmp_path, COMFYFARM_LEDGER="sqlite:///env.db")
    with render_backends(env, "sqlite:///named.db", local=True, on_line=SILENT) as found:
        assert found.ledger_url == SecretStr("sqlite:///named.db")
    with render_backends(env, None, local=True, on_line=SILENT) as found:
        assert found.ledger_url == SecretStr("sqlite:///env.db")


def test_with_a_prefect_api_and_a_ledger_nothing_is_started(tmp_path: Path) -> None:
    own = settings(tmp_path, PREFECT_API_URL="http://h:4200/api", COMFYFARM_LEDGER="sqlite:///env.db")
    with render_backends(own, None, local=False, on_line=SILENT) as found:
        assert found.prefect_api_url == "http://h:4200/api"
        assert found.ui_url is None
    assert not (tmp_path / "state").exists()


def test_other_commands_find_what_a_local_render_left(tmp_path: Path) -> None:
    with (
        pytest.raises(UsageError, match="--ledger or COMFYFARM_LEDGER"),
        known_ledger(settings(tmp_path), None, local=False, on_line=SILENT),
    ):
        pass
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "ledger.db").touch()
    with known_ledger(settings(tmp_path), None, local=False, on_line=SILENT) as found:
        assert found.get_secret_value().endswith("/state/ledger.db")
    (tmp_path / "x.db").touch()
    named = f"sqlite:///{tmp_path}/x.db"
    with known_ledger(settings(tmp_path), named, local=False, on_line=SILENT) as found:
        assert found == SecretStr(named)


def test_a_named_file_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    file = tmp_path / "new" / "x.db"

    with (
        pytest.raises(UsageError, match=f"no file {file}.*four slashes") as caught,
        known_ledger(settings(tmp_path), f"sqlite:///{file}", local=False, on_line=SILENT),
    ):
        pass

    assert f"ledger sqlite:///{file}: " in str(caught.value)  # as it may be typed again
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "api",
    ["http://h:4200", "http://h:4200/", "https://h/apis", "h:4200/api", "http://me:hunter2/x@h:4200"],
)
def test_an_address_that_is_no_prefect_api_is_told_before_anything_starts(tmp_path: Path, api: str) -> None:
    own = settings(tmp_path, PREFECT_API_URL=api, COMFYFARM_LEDGER="sqlite:///env.db")

    with (
        pytest.raises(UsageError, match=r"PREFECT_API_URL.*add /api") as caught,
        render_backends(own, None, local=False, on_line=SILENT),
    ):
        pass

    assert "hunter2" not in str(caught.value)
    with render_backends(own, None, local=True, on_line=SILENT) as found:
        assert found.prefect_api_url is None


@pytest.mark.parametrize(
    "api", ["http://h:4200/api", "https://h/prefect/api/", "https://h/api/accounts/a/workspaces/b"]
)
def test_an_address_of_a_prefect_api_is_taken_as_it_is(tmp_path: Path, api: str) -> None:
    own = settings(tmp_path, PREFECT_API_URL=api, COMFYFARM_LEDGER="sqlite:///env.db")

    with render_backends(own, None, local=False, on_line=SILENT) as found:
        assert found.prefect_api_url == api


def test_a_state_directory_that_cannot_be_one_is_wrong_usage(tmp_path: Path) -> None:
    (tmp_path / "state").touch()

    with (
        pytest.raises(UsageError, match=r"state: cannot be the state directory.*COMFYFARM_STATE_DIR"),
        render_backends(settings(tmp_path), None, local=True, on_line=SILENT),
    ):
        pass


def test_the_password_is_not_shown(tmp_path: Path) -> None:
    secret = settings(tmp_path, COMFYFARM_LEDGER="postgresql://me:hunter2@h/db")
    with render_backends(secret, None, local=True, on_line=SILENT) as found:
        assert "hunter2" not in repr(found)
