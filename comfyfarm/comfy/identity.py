"""Which life of a server this is: a restarted one has forgotten its queue and its history."""

from urllib.parse import urlsplit

import psutil

_LOOPBACK = {"127.0.0.1", "localhost", "::1", "0.0.0.0"}  # noqa: S104 - compared, never bound


def boot_identity(url: str) -> str:
    """`pid/start time` of the process that listens there; empty where that cannot be seen.

    Only processes of this machine can be seen, and as a plain user only one's own.
    """
    parts = urlsplit(url)
    if parts.hostname not in _LOOPBACK or parts.port is None:
        return ""
    try:
        pid = _listener(parts.port)
        return f"{pid}/{psutil.Process(pid).create_time():.2f}" if pid is not None else ""
    except psutil.Error:
        return ""


def _listener(port: int) -> int | None:
    for connection in psutil.net_connections(kind="tcp"):
        local = connection.laddr
        if connection.status == psutil.CONN_LISTEN and local and local.port == port:
            return connection.pid
    return None
