"""From what a user writes (`sqlite:///PATH`, `postgresql://…`) to what SQLAlchemy takes."""

import sqlite3
from pathlib import Path
from urllib.parse import unquote

from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError

from comfyfarm.addresses import expanded, mask
from comfyfarm.errors import UsageError

_WAYS = "set COMFYFARM_LEDGER or --ledger to sqlite:///PATH or postgresql://USER:PASSWORD@HOST/NAME"
_DRIVERS = {
    "sqlite": "sqlite",
    "postgresql": "postgresql+asyncpg",
    "postgres": "postgresql+asyncpg",
}
# libpq's spellings, and what asyncpg calls them.
_QUERY = {"host": "host", "port": "port", "sslmode": "ssl", "ssl": "ssl", "connect_timeout": "timeout"}


def parse_address(address: str) -> URL:
    """The address with our driver in it; a SQLite file's folder is made.

    Raises:
        UsageError: not an address of a ledger. The password is masked.
    """
    url = _read(address)
    if url.drivername == "sqlite":
        folder = Path(str(url.database)).parent
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as exc:
            raise bad_address(address, f"{folder} cannot be made ({exc.strerror})") from exc
    return url


def refuse_absent_file(address: str) -> None:
    """Refuse the address of a SQLite file that is not there: whoever only reads must not make one.

    Raises:
        UsageError: there is no such file, or this is not an address of a ledger.
    """
    url = _read(address)
    if url.drivername == "sqlite" and not Path(str(url.database)).is_file():
        raise UsageError(
            f"ledger {shown(address)}: there is no file {url.database}; nothing has been rendered with this "
            f"ledger yet, or it is another file: an absolute path needs four slashes, such as "
            f"sqlite:////srv/farm/ledger.db"
        )


def _read(address: str) -> URL:
    try:
        url = make_url(address)
    except (ArgumentError, ValueError) as exc:
        raise bad_address(address, "this is no database address") from exc
    kind = url.drivername.partition("+")[0]
    if kind not in _DRIVERS:
        raise bad_address(address, f"{kind} is not supported")
    url = url.set(drivername=_DRIVERS[kind])
    return _sqlite(url, address) if kind == "sqlite" else _postgresql(url, address)


def bad_address(address: str, reason: str) -> UsageError:
    """The error for an address that cannot be used."""
    return UsageError(f"ledger {shown(address)}: {reason}; {_WAYS}")


def shown(address: str) -> str:
    """The address as it may be printed."""
    return mask(address) if "://" in address else "***"


def _sqlite(url: URL, address: str) -> URL:
    if url.host or url.username:
        raise bad_address(
            address, "a SQLite address has three slashes before the path, four if it is absolute"
        )
    if not url.database or ":memory:" in url.database or url.query:
        raise bad_address(address, "a SQLite ledger needs a file, without options")
    if sqlite3.sqlite_version_info < (3, 35):
        raise bad_address(address, f"SQLite {sqlite3.sqlite_version} is too old, 3.35 is needed")
    return url.set(database=str(expanded(Path(unquote(url.database))).absolute()))


def _postgresql(url: URL, address: str) -> URL:
    if not url.database:
        raise bad_address(address, "the database's name is missing")
    unknown = sorted(set(url.query) - set(_QUERY))
    if unknown and address.count("@") > 1:  # what seems to be an option may be of the password
        raise bad_address(address, "unknown options; signs of the password such as @ and ? are %40 and %3F")
    if unknown:
        raise bad_address(address, f"unknown option {', '.join(unknown)}")
    return url.set(query={_QUERY[key]: value for key, value in url.query.items()})
