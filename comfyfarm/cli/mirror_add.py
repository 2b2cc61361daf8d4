"""`comfyfarm mirror add`: files of this machine, of the web, or of a lock, into a mirror."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import click

from comfyfarm.addresses import local_path, mask, read_bytes
from comfyfarm.cache.mirrors.add import FileFacts
from comfyfarm.cache.mirrors.entry import MirrorEntry
from comfyfarm.cli.edge import ends_with_exit_code, run_in_order, say
from comfyfarm.cli.hydration_options import keeper_of
from comfyfarm.cli.mirror_adding import Adding, Gauge
from comfyfarm.cli.mirror_place import mirror_at
from comfyfarm.cli.progress import bytes_so_far_bar
from comfyfarm.errors import FarmError, InputError, NoRoom, StoreError, UsageError
from comfyfarm.lock.lockfile import LOCK_LIMIT_BYTES, LockedModel, read_lock
from comfyfarm.settings import read_settings
from comfyfarm.workflow.shown import counted

FILES_AT_ONCE = 3
"""Large ones go up in many parts side by side already."""


@click.command("add")
@click.argument("what", nargs=-1, metavar="[FILE|URL]...")
@click.option("--mirror", required=True, metavar="DIR|s3://…")
@click.option(
    "--lock", metavar="FILE", help="All of a lock's models that the mirror lacks, from its sources."
)
@click.option("--folder", help="Models folder of ComfyUI, such as checkpoints.")
@click.option("--name", help="Name in that folder, of a single file. Default: the file's own.")
@click.option("--source", help="Where the file comes from. Default: its URL.")
@click.option("--licence", help="The file's licence.")
@click.option("--sha256", help="What the bytes of a single file must be.")
@click.option(
    "--deep", is_flag=True, help="Read the mirror's copies back, even if its server vouches for them."
)
@click.option("--cache", type=click.Path(path_type=Path), help="Where URLs land. Default: the user's cache.")
@ends_with_exit_code
def add(
    what: tuple[str, ...],
    mirror: str,
    lock: str | None,
    folder: str | None,
    name: str | None,
    source: str | None,
    licence: str | None,
    sha256: str | None,
    deep: bool,
    cache: Path | None,
) -> None:
    """Put files into the mirror; the same bytes twice are one object, and wrong ones there are replaced."""
    place = mirror_at(mirror, is_new=True)
    _check_words(what, lock, {"--folder": folder, "--name": name, "--source": source, "--sha256": sha256})
    known = FileFacts((name,) if name else (), folder, source, licence)
    with bytes_so_far_bar("mirror") as show:
        adding = Adding(place, keeper_of(read_settings(), cache), Gauge(show), deep=deep)
        jobs = [_job(adding, one, known, sha256) for one in what]
        if lock is not None:
            models = read_lock(read_bytes(lock, limit_bytes=LOCK_LIMIT_BYTES), name=lock).models
            jobs += _of_lock(adding, models, licence)
        failures = run_in_order(_run_all(jobs))
    _raise_all(failures)


def _check_words(what: Sequence[str], lock: str | None, options: dict[str, str | None]) -> None:
    if not what and lock is None:
        raise UsageError("nothing to add: name files or URLs, or --lock FILE")
    single = [option for option in ("--name", "--sha256") if options[option]]
    if single and (len(what) != 1 or lock is not None):
        raise UsageError(f"{single[0]} is of one file, and {'a lock' if lock else len(what)} was given")
    if lock is not None and not what and (given := [one for one, value in options.items() if value]):
        raise UsageError(f"{given[0]}: the lock says it of each file; leave it out")
    sha256 = options["--sha256"]
    if sha256 and (len(sha256) != 64 or set(sha256) - set("0123456789abcdef")):
        raise UsageError("--sha256: write 64 of 0-9 and a-f")


class _Job(NamedTuple):
    title: str
    """What was asked for, as it may be printed."""
    run: Callable[[], Awaitable[MirrorEntry | None]]
    """None where the mirror has it already."""


def _job(adding: Adding, one: str, known: FileFacts, sha256: str | None) -> _Job:
    path = local_path(one)
    if path is None:
        return _Job(mask(one), lambda: adding.add_address(one, known, sha256))
    if not path.is_file():
        raise UsageError(
            f"{path}: {'is a folder; name its files' if path.is_dir() else 'there is no such file'}"
        )
    return _Job(str(path), lambda: adding.add_path(path, known, sha256))


def _of_lock(adding: Adding, models: Iterable[LockedModel], licence: str | None) -> list[_Job]:
    """One job for each content, by all the names that the lock has for it."""
    by_content: dict[str, list[LockedModel]] = {}
    for model in models:
        by_content.setdefault(model.sha256, []).append(model)
    return [
        _Job(same[0].title, lambda same=same: adding.add_locked(same, licence))  # type: ignore[misc]
        for same in by_content.values()
    ]


async def _run_all(jobs: Sequence[_Job]) -> list[FarmError]:
    """Run all of them, some side by side; those that fail are returned, and stop no other."""
    slots = asyncio.Semaphore(FILES_AT_ONCE)
    failures: list[FarmError] = []
    crowded: list[_Job] = []
    there = 0

    async def one(job: _Job, *, is_alone: bool = False) -> None:
        nonlocal there
        try:
            async with slots:
                entry = await job.run()
        except FarmError as exc:
            if isinstance(exc, NoRoom) and not is_alone:
                crowded.append(job)
            else:
                failures.append(exc)
            return
        there += entry is None
        if entry is not None:
            click.echo(f"{entry.sha256}  {job.title}")

    await asyncio.gather(*map(one, jobs))
    for job in crowded:  # what does not fit beside others may fit after them
        await one(job, is_alone=True)
    if there:
        say(f"{counted(there, 'file')} of the lock {'is' if there == 1 else 'are'} in the mirror already")
    return failures


def _raise_all(failures: Sequence[FarmError]) -> None:
    if len(failures) == 1:
        raise failures[0]
    if failures:
        kinds = (InputError, UsageError, StoreError)
        kind = next(kind for kind in kinds if kind is StoreError or _any(failures, kind))
        raise kind("\n".join(map(str, failures)))


def _any(failures: Sequence[FarmError], kind: type[FarmError]) -> bool:
    return any(isinstance(one, kind) for one in failures)
