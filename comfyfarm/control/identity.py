"""As whom PostgreSQL runs, and what that user can reach. PostgreSQL refuses to run as root."""

import os
import pwd
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from comfyfarm.errors import ControlUnavailable


class Identity(BaseModel):
    """Another user, whose processes root starts."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    uid: int
    gid: int


def postgres_identity() -> Identity | None:
    """The user for PostgreSQL: `nobody` when we are root, else ourselves (None).

    Raises:
        ControlUnavailable: there is no such user.
    """
    if os.geteuid() != 0:
        return None
    try:
        entry = pwd.getpwnam("nobody")
    except KeyError as exc:
        raise ControlUnavailable("PostgreSQL refuses to run as root, and there is no user `nobody`") from exc
    return Identity(uid=entry.pw_uid, gid=entry.pw_gid)


def can_reach(identity: Identity | None, path: Path) -> bool:
    """Whether the user may enter the folder `path` and all above it."""
    if identity is None:
        return os.access(path, os.X_OK)
    resolved = path.resolve()
    return all(_may_enter(identity, folder) for folder in (resolved, *resolved.parents))


def _may_enter(identity: Identity, folder: Path) -> bool:
    stat = folder.stat()
    if stat.st_uid == identity.uid:
        return bool(stat.st_mode & 0o100)
    if stat.st_gid == identity.gid:
        return bool(stat.st_mode & 0o010)
    return bool(stat.st_mode & 0o001)
