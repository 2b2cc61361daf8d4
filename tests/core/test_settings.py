"""Settings: from the environment, once, with defaults for a newcomer."""

from pathlib import Path

import platformdirs
import pytest

from comfyfarm.errors import UsageError
from comfyfarm.settings import read_settings


def test_the_defaults_are_the_users_own_folders() -> None:
    settings = read_settings({})

    assert settings.state_dir == Path(platformdirs.user_state_dir("comfyfarm"))
    assert settings.cache_dir == Path(platformdirs.user_cache_dir("comfyfarm"))
    assert settings.ledger is None
    assert settings.prefect_api_url is None


def test_each_variable_is_heard() -> None:
    settings = read_settings(
        {
            "COMFYFARM_STATE_DIR": "/var/farm",
            "COMFYFARM_CACHE_DIR": "/data/models",
            "COMFYFARM_LEDGER": "postgresql://me:hunter2@db/farm",
            "PREFECT_API_URL": "http://127.0.0.1:4200/api",
        }
    )

    assert settings.state_dir == Path("/var/farm")
    assert settings.cache_dir == Path("/data/models")
    assert settings.ledger is not None
    assert settings.ledger.get_secret_value() == "postgresql://me:hunter2@db/farm"
    assert settings.prefect_api_url == "http://127.0.0.1:4200/api"


def test_an_empty_variable_is_none() -> None:
    empty = {
        "COMFYFARM_STATE_DIR": "",
        "COMFYFARM_CACHE_DIR": "",
        "COMFYFARM_LEDGER": "",
        "PREFECT_API_URL": "",
    }

    assert read_settings(empty) == read_settings({})


def test_a_path_is_made_absolute(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/me")

    settings = read_settings({"COMFYFARM_STATE_DIR": "state", "COMFYFARM_CACHE_DIR": "~/models"})

    assert settings.state_dir == tmp_path / "state"
    assert settings.cache_dir == Path("/home/me/models")


def test_the_ledgers_password_is_not_shown() -> None:
    assert "hunter2" not in repr(read_settings({"COMFYFARM_LEDGER": "postgresql://me:hunter2@db/farm"}))


@pytest.mark.parametrize("grace", ["abc", "-1", "nan", "inf", "30s"])
def test_a_grace_that_is_no_number_of_seconds_is_wrong_usage(grace: str) -> None:
    with pytest.raises(UsageError, match=f"COMFYFARM_GRACE_S='{grace}': write a number of seconds"):
        read_settings({"COMFYFARM_GRACE_S": grace})


def test_a_grace_may_be_nothing_at_all() -> None:
    assert read_settings({"COMFYFARM_GRACE_S": "0"}).grace_s == 0
    assert read_settings({"COMFYFARM_GRACE_S": "2.5"}).grace_s == 2.5
    assert read_settings({"COMFYFARM_GRACE_S": ""}).grace_s == 30


@pytest.mark.parametrize("variable", ["COMFYFARM_STATE_DIR", "COMFYFARM_CACHE_DIR"])
def test_the_home_of_nobody_is_wrong_usage(variable: str) -> None:
    with pytest.raises(UsageError, match=f"{variable}='~nobody-of-this-name/x': there is no such user"):
        read_settings({variable: "~nobody-of-this-name/x"})
