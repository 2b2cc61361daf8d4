"""Addresses of ledgers, good and bad."""

from pathlib import Path

import pytest

from comfyfarm.control.postgres import Postgres
from comfyfarm.errors import LedgerError, UsageError
from comfyfarm.ledger.address import parse_address, refuse_absent_file
from comfyfarm.ledger.ledger import open_ledger


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("postgresql://u:p@h:5/n", "postgresql+asyncpg://u:p@h:5/n"),
        ("postgres://u:p@h/n", "postgresql+asyncpg://u:p@h/n"),
        ("postgresql+psycopg://u@h/n?sslmode=require", "postgresql+asyncpg://u@h/n?ssl=require"),
        ("postgresql://postgres@/n?host=/run/x", "postgresql+asyncpg://postgres@/n?host=%2Frun%2Fx"),
    ],
)
def test_the_driver_is_our_business(address: str, expected: str) -> None:
    assert parse_address(address).render_as_string(hide_password=False) == expected


def test_a_sqlite_path_may_be_relative_and_its_folder_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    url = parse_address("sqlite:///new/l.db")

    assert url.database == str(tmp_path / "new" / "l.db")
    assert (tmp_path / "new").is_dir()


@pytest.mark.parametrize(
    "address",
    [
        "ledger.db",
        "mysql://u:geheim@h/n",
        "postgresql://u:geheim@h",
        "postgresql://u:geheim@h/n?colour=red",
        "postgresql://u:geheim@h:port/n",
        "sqlite://",
        "sqlite:///:memory:",
        "sqlite://two/slashes.db",
        "postgresql://u:a/geheim@h",
        "mysql://u:a#geheim@h/n",
        "postgresql://u:a@h?geheim=x@h/n",
    ],
)
def test_a_bad_address_says_what_to_set_and_keeps_the_password(address: str) -> None:
    with pytest.raises(UsageError, match=r"COMFYFARM_LEDGER or --ledger") as caught:
        parse_address(address)

    assert "geheim" not in str(caught.value)


def test_a_reader_is_told_of_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=f"no file {tmp_path}/new/l.db.*four slashes"):
        refuse_absent_file(f"sqlite:///{tmp_path}/new/l.db")
    assert list(tmp_path.iterdir()) == []

    (tmp_path / "l.db").touch()
    refuse_absent_file(f"sqlite:///{tmp_path}/l.db")
    refuse_absent_file("postgresql://u:p@h/n")


async def test_a_file_that_is_no_database_is_a_usage_error(tmp_path: Path) -> None:
    (tmp_path / "l.db").write_text("not a database, but long enough to be looked at" * 10)

    with pytest.raises(UsageError, match="COMFYFARM_LEDGER"):
        await open_ledger(f"sqlite:///{tmp_path}/l.db")


async def test_a_folder_that_cannot_be_made_is_a_usage_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(UsageError, match="cannot be made"):
        await open_ledger(f"sqlite:///{tmp_path}/file/l.db")


async def test_a_database_that_does_not_exist_is_a_usage_error(postgres: Postgres) -> None:
    with pytest.raises(UsageError, match=r'database "nothing" does not exist.*COMFYFARM_LEDGER'):
        await open_ledger(postgres.url("nothing"))


async def test_a_server_that_does_not_answer_may_be_tried_later(tmp_path: Path) -> None:
    class NoWait:
        def now(self) -> float:
            return 0.0

        def monotonic(self) -> float:
            return 0.0

        async def sleep(self, seconds: float) -> None:
            waits.append(seconds)

    waits: list[float] = []
    with pytest.raises(LedgerError, match="No such file"):
        await open_ledger(f"postgresql://u:geheim@/n?host={tmp_path}", clock=NoWait())

    assert len(waits) >= 3
    assert list(tmp_path.iterdir()) == []
