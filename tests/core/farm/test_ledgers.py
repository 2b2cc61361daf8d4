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
    with known_ledger(settings(tmp_path), "sqlite:///x.db", local=False, on_line=SILENT) as found:
        assert found == SecretStr("sqlite:///x.db")


def test_the_password_is_not_shown(tmp_path: Path) -> None:
    secret = settings(tmp_path, COMFYFARM_LEDGER="postgresql://me:hunter2@h/db")
    with render_backends(secret, None, local=True, on_line=SILENT) as found:
        assert "hunter2" not in repr(found)
