"""`comfyfarm cache ls|pin|unpin|evict|verify|stats|serve`: this host's model files and who keeps them."""

import contextlib
import importlib
import json
import logging
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import click

from comfyfarm.addresses import mask, read_bytes
from comfyfarm.cache.keeper.admission import Cause, Stay
from comfyfarm.cache.keeper.entries import find_shas, list_entries
from comfyfarm.cache.keeper.keeper import Keeper
from comfyfarm.cli.cache_rows import print_entries, print_stats, shortened
from comfyfarm.cli.edge import ends_with_exit_code, say
from comfyfarm.cli.hydration_options import keeper_of
from comfyfarm.errors import UsageError
from comfyfarm.plan.host_plan import bytes_text
from comfyfarm.settings import read_settings
from comfyfarm.workflow.shown import counted

_GIB = 1 << 30
_HAND = "hand"

Function = TypeVar("Function", bound=Callable[..., Any])


class _CacheGroup(click.Group):
    """Loads the server of `serve` only when it is called."""

    def list_commands(self, _ctx: click.Context) -> list[str]:
        """All names, in the order in which they are of use."""
        return [*self.commands, "serve"]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The subcommand, loaded now."""
        if cmd_name != "serve":
            return super().get_command(ctx, cmd_name)
        found: click.Command = importlib.import_module("comfyfarm.cli.cache_serve_command").command
        return found


@click.group("cache", cls=_CacheGroup)
def command() -> None:
    """This host's store of model files: what is here, what stays, what may leave.

    A file is meant by its SHA-256 or how that begins, by folder/path, or by its file name.
    """


def _of_a_cache(function: Function) -> Function:
    option = click.option(
        "--cache", type=click.Path(path_type=Path), help="Default: the user's cache directory."
    )
    return option(function)


def _as_json(function: Function) -> Function:
    return click.option("--json", "as_json", is_flag=True, help="For programs.")(function)


@command.command("ls")
@_of_a_cache
@_as_json
@ends_with_exit_code
def ls(cache: Path | None, *, as_json: bool) -> None:
    """List the files, the last used first; with --json one object a line."""
    entries = list_entries(_keeper(cache))
    if as_json:
        for entry in entries:
            click.echo(entry.model_dump_json())
        return
    print_entries(entries)


@command.command("pin")
@click.argument("files", nargs=-1)
@click.option("--lock", metavar="FILE", help="All files of this lock, under its digest.")
@click.option("--why", default="", help="A word for whoever wonders later.")
@_of_a_cache
@ends_with_exit_code
def pin(files: tuple[str, ...], lock: str | None, why: str, cache: Path | None) -> None:
    """Keep FILES, or those of a lock, from ever being evicted, be they here already or not."""
    keeper = _keeper(cache)
    if not files and lock is None:
        raise UsageError("name files to pin, or a lock with --lock")
    if lock is not None:
        who, names = _read_lock(lock)
        keeper.pin(names, who=who, why=why or mask(lock))
        click.echo(f"{counted(len(names), 'file')} pinned {_by(who)}")
    if files:
        shas = find_shas(files, list_entries(keeper), may_come=True)
        keeper.pin(dict.fromkeys(shas, ""), who=_HAND, why=why)
        click.echo(f"{counted(len(shas), 'file')} pinned {_by(_HAND)}")


@command.command("unpin")
@click.argument("files", nargs=-1)
@click.option("--lock", metavar="FILE|DIGEST", help="The pins of this lock, or of a digest in `ls`.")
@click.option("--anyones", is_flag=True, help="FILES of whoever pinned them.")
@_of_a_cache
@ends_with_exit_code
def unpin(files: tuple[str, ...], lock: str | None, cache: Path | None, *, anyones: bool) -> None:
    """Take pins away: those of FILES by hand, or those of a lock."""
    keeper = _keeper(cache)
    if not files and lock is None:
        raise UsageError("name files to unpin, or a lock with --lock")
    if lock is not None:
        who = _pinner(lock, keeper)
        click.echo(f"{counted(len(keeper.unpin(who)), 'file')} no longer pinned {_by(who)}")
    if files:
        shas = find_shas(files, list_entries(keeper), may_come=True)
        gone = keeper.unpin(None if anyones else _HAND, shas)
        click.echo(f"{counted(len(gone), 'file')} no longer pinned {'' if anyones else _by(_HAND)}".rstrip())
        for entry in list_entries(keeper):
            if entry.sha256 in shas and entry.pinned:
                say(f"{entry.sha256[:12]} is still pinned {shortened(', '.join(entry.pinned))}")


@command.command("evict")
@click.argument("files", nargs=-1)
@click.option("--to-gb", type=click.FloatRange(min=0), help="The longest unused, down to so many GiB in all.")
@click.option("--all", "is_all", is_flag=True, help="Everything that is neither pinned nor in use.")
@_of_a_cache
@_as_json
@ends_with_exit_code
def evict(
    files: tuple[str, ...], to_gb: float | None, cache: Path | None, *, is_all: bool, as_json: bool
) -> None:
    """Remove FILES and their links: never what is pinned or in use.

    Exit status: 1 when what was to leave stays because it is pinned, 3 because it is in use; --all ends
    with 0 whatever stays.
    """
    if bool(files) + (to_gb is not None) + is_all != 1:
        raise UsageError("name files to evict, or pass one of --to-gb and --all")
    keeper = _keeper(cache)
    entries = list_entries(keeper)
    if to_gb is not None:
        kept = keeper.evict_to(int(to_gb * _GIB))
    else:
        here = [entry.sha256 for entry in entries if entry.size is not None]
        kept = keeper.evict(here if is_all else find_shas(files, entries, may_come=True))
    if as_json:
        told = {**kept._asdict(), "stayed": {sha: str(stay) for sha, stay in kept.stayed.items()}}
        click.echo(json.dumps(told, ensure_ascii=False))
    names = {entry.sha256: entry.names[0] if entry.names else entry.sha256[:12] for entry in entries}
    for sha, stay in kept.stayed.items():
        say(f"{names.get(sha, sha[:12])} stays: {shortened(str(stay))}")
    if not as_json:
        click.echo(f"{counted(len(kept.evicted), 'file')} evicted, {bytes_text(kept.freed_bytes)} freed")
    sys.exit(0 if is_all else _exit_code(kept.stayed))


@command.command("verify")
@click.argument("files", nargs=-1)
@_of_a_cache
@_as_json
@ends_with_exit_code
def verify(files: tuple[str, ...], cache: Path | None, *, as_json: bool) -> None:
    """Read FILES, or all, again, and quarantine those whose bytes have changed.

    Exit status: 3 when any has changed, or is not here; hydrating fetches it anew.
    """
    from comfyfarm.cache.keeper.verify import verify as verify_blobs
    from comfyfarm.cli.progress import bytes_bar

    keeper = _keeper(cache)
    entries = list_entries(keeper)
    shas = find_shas(files, entries, may_come=True) if files else None
    sizes = sum(entry.size or 0 for entry in entries if shas is None or entry.sha256 in shas)
    with bytes_bar("verify", sizes) as advance, _said_below():
        report = verify_blobs(keeper, shas, on_bytes=advance)
    if as_json:
        click.echo(report.model_dump_json())
    for sha in report.absent:
        say(f"{sha}: not here")
    for one in report.spoiled:
        where = f"; it lies in {one.quarantined} now" if one.quarantined else ""
        say(f"{one.sha256}: {one.reason}{where}")
    if not as_json:
        told = f"{counted(report.checked, 'file')} read ({bytes_text(report.checked_bytes)})"
        click.echo(f"{told}, {len(report.spoiled)} wrong")
    sys.exit(3 if report.spoiled or report.absent else 0)


@command.command("stats")
@click.option("--prometheus", "as_prometheus", is_flag=True, help="As Prometheus reads them.")
@_of_a_cache
@_as_json
@ends_with_exit_code
def stats(cache: Path | None, *, as_prometheus: bool, as_json: bool) -> None:
    """Figures: sizes, bounds, hits, misses, evictions."""
    from comfyfarm.cache.keeper.stats import prometheus, read_stats

    figures = read_stats(_keeper(cache))
    if as_prometheus:
        click.echo(prometheus(figures), nl=False)
    elif as_json:
        click.echo(figures.model_dump_json())
    else:
        print_stats(figures)


def _keeper(cache: Path | None) -> Keeper:
    return keeper_of(read_settings(), cache)


@contextlib.contextmanager
def _said_below() -> Iterator[None]:
    """What the cache warns of while it is verified is what the command says in the end."""
    log = logging.getLogger("comfyfarm.cache.blobs")
    before = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(before)


def _read_lock(lock: str) -> tuple[str, dict[str, str]]:
    from comfyfarm.lock.lockfile import LOCK_LIMIT_BYTES, read_lock

    read = read_lock(read_bytes(lock, limit_bytes=LOCK_LIMIT_BYTES), name=lock)
    return f"lock {read.digest}", {model.sha256: model.title for model in read.models}


def _pinner(lock: str, keeper: Keeper) -> str:
    """Whose pins are meant: of a digest, since a lock may have changed since; or of a file as it is now."""
    digests = {pin.who for many in keeper.index.read().pins.values() for pin in many if pin.who != _HAND}
    found = [who for who in digests if who.startswith(f"lock {lock}") and len(lock) >= 6]
    return found[0] if len(found) == 1 else _read_lock(lock)[0]


def _by(who: str) -> str:
    return f"by {who[:17]}"


def _exit_code(stayed: Mapping[str, Stay]) -> int:
    if any(stay.cause is Cause.IN_USE for stay in stayed.values()):
        return 3
    return 1 if stayed else 0
