"""Which ledger a command means: the one named, else the control server's, else the local file."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pydantic import BaseModel, ConfigDict, SecretStr

from comfyfarm.addresses import mask
from comfyfarm.control.launch import use_control
from comfyfarm.control.state import ControlPaths
from comfyfarm.errors import UsageError
from comfyfarm.ledger.address import refuse_absent_file
from comfyfarm.settings import FarmSettings


class Backends(BaseModel):
    """Where a render reports to and where its truth is kept."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    ledger_url: SecretStr
    prefect_api_url: str | None
    """None without Prefect."""
    ui_url: str | None = None
    users_fd: int | None = None
    """Lock that keeps the control server up; a child that needs it inherits it."""


@contextmanager
def render_backends(
    settings: FarmSettings, ledger: str | None, *, local: bool, on_line: Callable[[str], None]
) -> Iterator[Backends]:
    """Prefect API and ledger for a render; the control server runs while this is open, if it is needed.

    Raises:
        ControlUnavailable: it is needed and cannot run here.
        UsageError: PREFECT_API_URL is not the address of an API, or the state directory cannot be used.
    """
    named = _named(settings, ledger)
    if local:
        yield Backends(ledger_url=named or _local(settings), prefect_api_url=None)
        return
    api = _prefect_api(settings)
    if api is not None and named is not None:
        yield Backends(ledger_url=named, prefect_api_url=api)
        return
    with use_control(settings.state_dir, with_prefect=api is None, on_line=on_line) as control:
        yield Backends(
            ledger_url=named or SecretStr(control.ledger_url),
            prefect_api_url=api or control.api_url,
            ui_url=None if api else control.ui_url,
            users_fd=control.users_fd,
        )


@contextmanager
def known_ledger(
    settings: FarmSettings, ledger: str | None, *, local: bool, on_line: Callable[[str], None]
) -> Iterator[SecretStr]:
    """The ledger that holds what earlier renders did, in the same order as `render` finds its own.

    Raises:
        UsageError: nothing has been rendered here yet, or the SQLite file that is named is not there.
    """
    named = _named(settings, ledger)
    local_file = settings.state_dir / "ledger.db"
    if named is not None:
        refuse_absent_file(named.get_secret_value())
        yield named
    elif not local and ControlPaths(settings.state_dir).home.is_dir():
        with use_control(settings.state_dir, with_prefect=False, on_line=on_line) as control:
            yield SecretStr(control.ledger_url)
    elif local_file.is_file():
        yield _local(settings)
    else:
        raise UsageError(
            f"nothing has been rendered here yet: there is no ledger in {settings.state_dir}; "
            f"another one is named with --ledger or COMFYFARM_LEDGER"
        )


def _named(settings: FarmSettings, ledger: str | None) -> SecretStr | None:
    return SecretStr(ledger) if ledger else settings.ledger


def _prefect_api(settings: FarmSettings) -> str | None:
    """The Prefect API that is named; of a server it ends in /api, of Prefect Cloud it names a workspace."""
    api = settings.prefect_api_url
    if api is None:
        return None
    is_web = api.lower().startswith(("http://", "https://"))
    path = "/" + api.partition("://")[2].partition("/")[2].rstrip("/")
    if is_web and (path.endswith("/api") or path.startswith("/api/accounts/")):
        return api
    raise UsageError(
        f"PREFECT_API_URL (or the active Prefect profile) says {mask(api)}, which is no address of a "
        f"Prefect API: add /api, as in http://127.0.0.1:4200/api"
    )


def _local(settings: FarmSettings) -> SecretStr:
    file = settings.state_dir / "ledger.db"
    try:
        settings.state_dir.mkdir(parents=True, exist_ok=True)
        file.touch(mode=0o600)  # servers' addresses may hold passwords
    except OSError as exc:
        raise UsageError(
            f"{settings.state_dir}: cannot be the state directory ({exc.strerror}); set COMFYFARM_STATE_DIR"
        ) from exc
    return SecretStr(f"sqlite:///{file}")
