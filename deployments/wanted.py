"""What one host is to have on a Prefect server, as one value."""

from pathlib import Path

from pydantic import BaseModel, ConfigDict, SecretStr

from comfyfarm import __version__
from comfyfarm.addresses import is_address
from comfyfarm.app import app_dir
from comfyfarm.ledger.records import ServerRecord


class Wanted(BaseModel):
    """A host with its servers, and where its work comes from and goes to."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    host: str
    """As in the tag `gpu:<host>`."""
    pool: str
    """The work pool that the host's worker serves."""
    servers: tuple[str, ...]
    ledger: SecretStr
    out: str
    mirror: str | None = None
    cache_dir: Path | None = None
    models_dir: Path | None = None
    inputs_dir: Path | None = None
    concurrency: int | None = None
    """Flow runs at a time; None leaves it as it is."""
    time_zone: str = "UTC"
    state_dir: Path | None = None
    """The worker's COMFYFARM_STATE_DIR, when it is not the user's own."""
    records: tuple[ServerRecord, ...] = ()
    """The servers as they answered: their devices say which limits there are."""

    def variables(self) -> dict[str, str]:
        """What `prefect.yaml` leaves open; empty for what is not wanted."""
        return {
            "COMFYFARM_APP_DIR": str(app_dir()),
            "COMFYFARM_HOST": self.host,
            "COMFYFARM_POOL": self.pool,
            "COMFYFARM_VERSION": __version__,
            "COMFYFARM_TIME_ZONE": self.time_zone,
            "COMFYFARM_MIRROR_BLOCK": "mirror/default" if self.mirror else "",
            "COMFYFARM_STATE_DIR": str(self.state_dir) if self.state_dir else "",
        }


def absolute(place: str) -> str:
    """The address, or the whole path: a worker runs in another directory."""
    return place if is_address(place) else str(Path(place).expanduser().absolute())
