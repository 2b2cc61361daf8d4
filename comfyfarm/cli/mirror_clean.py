"""`comfyfarm mirror gc`: remove from a mirror what no lock names."""

import asyncio
import sys

import click

from comfyfarm.addresses import read_bytes
from comfyfarm.cache.mirrors.clean import DAY_S, Rubbish, find_rubbish, remove_rubbish, titles
from comfyfarm.cache.mirrors.inventory import take_inventory
from comfyfarm.cache.places.place import ObjectPlace
from comfyfarm.cli.edge import ends_with_exit_code, say
from comfyfarm.cli.mirror_place import mirror_at
from comfyfarm.farm.sources import LOCK_LIMIT_BYTES
from comfyfarm.lock.lockfile import read_lock
from comfyfarm.plan.host_plan import bytes_text
from comfyfarm.workflow.shown import counted


@click.command("gc")
@click.option("--mirror", required=True, metavar="DIR|s3://…")
@click.option("--keep", "locks", required=True, multiple=True, metavar="LOCK", help="May be repeated.")
@click.option(
    "--older-than",
    "days",
    type=click.FloatRange(min=0),
    default=7,
    show_default=True,
    metavar="DAYS",
    help="What was put in or described since stays.",
)
@click.option("--yes", is_flag=True, help="Remove; else it is only said what would go.")
@ends_with_exit_code
def gc(mirror: str, locks: tuple[str, ...], days: float, yes: bool) -> None:
    """Remove files that no lock names, entries without files, and uploads that were given up."""
    place = mirror_at(mirror)
    keep = {
        model.sha256
        for lock in locks
        for model in read_lock(read_bytes(lock, limit_bytes=LOCK_LIMIT_BYTES), name=lock).models
    }
    asyncio.run(_clean(place, keep, days * DAY_S, yes=yes))


async def _clean(place: ObjectPlace, keep: set[str], older_than_s: float, *, yes: bool) -> None:
    inventory = await take_inventory(place)
    rubbish = await find_rubbish(place, inventory, keep, older_than_s=older_than_s)
    await _show(place, rubbish, verb="removing" if yes else "would remove")
    files, uploads = counted(len(rubbish.files), "file"), counted(len(rubbish.uploads), "unfinished upload")
    size = bytes_text(rubbish.size_bytes)
    stays = f"{rubbish.kept} kept by locks, {rubbish.too_young} too young"
    if yes:
        gone = await remove_rubbish(place, rubbish)
        say(f"{len(gone)} of {files} ({size}) and {uploads} removed; {stays}")
    elif rubbish.files or rubbish.uploads:
        say(f"{files} ({size}) and {uploads} would go; {stays}; --yes removes them")
    else:
        say(f"nothing to remove; {stays}")
    sys.stdout.flush()


async def _show(place: ObjectPlace, rubbish: Rubbish, *, verb: str) -> None:
    known = await titles(place, rubbish.files)
    for one in rubbish.files:
        what = bytes_text(one.size) if one.has_file else "an entry without its file"
        age = f"{one.age_s / DAY_S:.1f} days old"
        click.echo(f"{verb} {one.sha256}  {what}  {age}  {known.get(one.sha256, '')}".rstrip())
    for upload in rubbish.uploads:
        click.echo(f"{verb} an unfinished upload of {upload.name}, begun {upload.begun:%Y-%m-%d %H:%M}")
