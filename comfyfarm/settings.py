"""What the environment says, read once at an edge (the command, a flow) and handed down as a value."""

import math
import os
import tomllib
from collections.abc import Mapping
from pathlib import Path

import platformdirs
from pydantic import BaseModel, ConfigDict, NonNegativeFloat, NonNegativeInt, SecretStr

from comfyfarm.errors import UsageError


class FarmSettings(BaseModel):
    """Settings from `COMFYFARM_*`; every one has a default that a newcomer can live with."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    state_dir: Path
    """Ledger, control server and unsynced outputs (`COMFYFARM_STATE_DIR`)."""
    cache_dir: Path
    """The host's store of model files (`COMFYFARM_CACHE_DIR`)."""
    cache_quota_bytes: NonNegativeInt | None
    """What all of its files together may take (`COMFYFARM_CACHE_QUOTA_GB`, in GiB); None is no bound."""
    cache_free_bytes: NonNegativeInt
    """What is to stay free on its disk (`COMFYFARM_CACHE_FREE_GB`, in GiB, 1 by default)."""
    signed: str | None
    """A list of signed addresses, for hosts without credentials (`COMFYFARM_SIGNED`, a path or address)."""
    peers: tuple[str, ...]
    """Addresses of other hosts' caches, asked before the mirror (`COMFYFARM_PEERS`, separated by commas)."""
    peer_token: SecretStr | None
    """What hosts that share their caches know of each other (`COMFYFARM_PEER_TOKEN`)."""
    ledger: SecretStr | None
    """Address of the ledger (`COMFYFARM_LEDGER`); it may hold a password."""
    grace_s: NonNegativeFloat
    """How long running prompts may still take after a first SIGTERM, in seconds (`COMFYFARM_GRACE_S`)."""
    prefect_api_url: str | None
    """A Prefect server of the user's own (`PREFECT_API_URL`, else that of the active profile)."""


def read_settings(environ: Mapping[str, str] | None = None) -> FarmSettings:
    """Read the settings from `environ` (default: the process's own).

    Raises:
        UsageError: a variable that is no number of seconds, or begins with the home of nobody.
    """
    env = os.environ if environ is None else environ
    state = env.get("COMFYFARM_STATE_DIR") or platformdirs.user_state_dir("comfyfarm")
    cache = env.get("COMFYFARM_CACHE_DIR") or platformdirs.user_cache_dir("comfyfarm")
    return FarmSettings(
        state_dir=_folder("COMFYFARM_STATE_DIR", state),
        cache_dir=_folder("COMFYFARM_CACHE_DIR", cache),
        cache_quota_bytes=_gibibytes("COMFYFARM_CACHE_QUOTA_GB", env.get("COMFYFARM_CACHE_QUOTA_GB")),
        cache_free_bytes=_gibibytes("COMFYFARM_CACHE_FREE_GB", env.get("COMFYFARM_CACHE_FREE_GB") or "1")
        or 0,
        signed=env.get("COMFYFARM_SIGNED") or None,
        peers=tuple(part.strip() for part in env.get("COMFYFARM_PEERS", "").split(",") if part.strip()),
        peer_token=SecretStr(env["COMFYFARM_PEER_TOKEN"]) if env.get("COMFYFARM_PEER_TOKEN") else None,
        ledger=SecretStr(env["COMFYFARM_LEDGER"]) if env.get("COMFYFARM_LEDGER") else None,
        grace_s=_seconds("COMFYFARM_GRACE_S", env.get("COMFYFARM_GRACE_S") or "30"),
        prefect_api_url=env.get("PREFECT_API_URL") or _from_profile(env),
    )


def _folder(variable: str, text: str) -> Path:
    try:
        return Path(text).expanduser().absolute()
    except RuntimeError as exc:
        raise UsageError(f"{variable}={text!a}: there is no such user; write the whole path") from exc


def _seconds(variable: str, text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds < math.inf:
        raise UsageError(f"{variable}={text!a}: write a number of seconds, 0 or more, such as 30")
    return seconds


def _gibibytes(variable: str, text: str | None) -> int | None:
    if not text:
        return None
    try:
        size = float(text)
    except ValueError:
        size = math.nan
    if not 0 <= size < math.inf:
        raise UsageError(f"{variable}={text!a}: write a number of GiB, 0 or more, such as 200")
    return int(size * 2**30)


def _from_profile(env: Mapping[str, str]) -> str | None:
    """The API that the user's active Prefect profile names; reading it needs no Prefect."""
    home = Path(env.get("PREFECT_HOME") or Path.home() / ".prefect")
    try:
        kept = tomllib.loads((home / "profiles.toml").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    active = kept.get("profiles", {}).get(env.get("PREFECT_PROFILE") or kept.get("active"))
    found = active.get("PREFECT_API_URL") if isinstance(active, dict) else None
    return str(found) if found else None
