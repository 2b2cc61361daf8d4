"""Where this host's model files come from and go to, as its settings say."""

from pathlib import Path

from comfyfarm.cache.blobs import BlobStore
from comfyfarm.cache.keeper.keeper import Bounds, Keeper
from comfyfarm.cache.places.place import S3Access
from comfyfarm.cache.supply import Supply
from comfyfarm.settings import FarmSettings


def supply_from(
    settings: FarmSettings,
    *,
    mirror: str | None = None,
    access: S3Access | None = None,
    signed: str | None = None,
    connections: int | None = None,
) -> Supply:
    """What the call names, and the peers of the settings."""
    return Supply(
        mirror=mirror,
        access=access,
        signed=signed or settings.signed,
        peers=settings.peers,
        peer_token=settings.peer_token,
        connections=connections,
    )


def keeper_from(settings: FarmSettings, cache_dir: Path | None = None) -> Keeper:
    """The keeper of a cache (default: the settings' own), within the settings' bounds."""
    bounds = Bounds(settings.cache_quota_bytes, settings.cache_free_bytes)
    return Keeper(BlobStore((cache_dir or settings.cache_dir).absolute()), bounds)
