"""`comfyfarm mirror sign`: addresses of a lock's files for hosts that hold no credentials."""

import asyncio
import os
import secrets
from pathlib import Path

import click

from comfyfarm.addresses import read_bytes
from comfyfarm.cache.mirrors.sign import LONGEST_S, sign_files
from comfyfarm.cli.edge import ends_with_exit_code, say
from comfyfarm.cli.mirror_place import mirror_at
from comfyfarm.errors import InputError, NamesMissing, UsageError
from comfyfarm.farm.sources import LOCK_LIMIT_BYTES
from comfyfarm.lock.lockfile import Lock, read_lock
from comfyfarm.workflow.shown import counted

_STDOUT = "-"


@click.command("sign")
@click.option("--lock", "lock_name", required=True, metavar="FILE", help="The lock, or its address.")
@click.option("--mirror", required=True, metavar="s3://…")
@click.option(
    "--hours",
    type=click.FloatRange(min=0, max=LONGEST_S / 3600, min_open=True),
    default=12,
    show_default=True,
    help="How long the addresses are good; those of a role's temporary credentials end with them.",
)
@click.option("--out", default="signed.json", show_default=True, metavar="FILE", help="`-` is stdout.")
@click.option("--partial", is_flag=True, help="Also where the mirror lacks some of the lock's files.")
@ends_with_exit_code
def sign(lock_name: str, mirror: str, hours: float, out: str, partial: bool) -> None:
    """Write a list of signed addresses. Whoever has it can read the files: treat it as a password.

    Made anew in time, under the same name, it keeps running transfers going.
    """
    lock = read_lock(read_bytes(lock_name, limit_bytes=LOCK_LIMIT_BYTES), name=lock_name)
    sizes = {model.sha256: model.size for model in lock.models}
    signed = asyncio.run(sign_files(mirror_at(mirror), sizes, expires_s=max(1, int(hours * 3600))))
    if signed.absent and not partial:
        raise NamesMissing(
            "the mirror lacks files of the lock; put them in with `comfyfarm mirror add --lock`, or sign "
            "the others with --partial:",
            _titles(lock, signed.absent),
        )
    if not signed.file.files:
        raise InputError(f"{lock_name}: the mirror has none of its files; nothing was signed")
    if out == _STDOUT:
        click.echo(signed.file.text(), nl=False)
    else:
        _write_private(Path(out), signed.file.text().encode())
    files = counted(len(signed.file.files), "file")
    say(
        f"{files} signed until {signed.file.expires:%Y-%m-%d %H:%M} UTC{'' if out == _STDOUT else f': {out}'}"
    )


def _titles(lock: Lock, absent: tuple[str, ...]) -> list[str]:
    return [model.title for model in lock.models if model.sha256 in absent]


def _write_private(path: Path, data: bytes) -> None:
    """Whole or not at all, and never for others to read, not even for a moment."""
    partial = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        fd = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            with os.fdopen(fd, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)
    except OSError as exc:
        raise UsageError(f"{path}: cannot be written ({exc.strerror})") from exc
