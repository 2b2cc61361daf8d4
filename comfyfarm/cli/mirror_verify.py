"""`comfyfarm mirror verify`: whether the mirror's files are what their names say."""

import asyncio
import re
import sys

import click

from comfyfarm.cache.mirrors.inventory import take_inventory
from comfyfarm.cache.mirrors.verify import Verified, everything
from comfyfarm.cache.mirrors.verify import verify as verify_files
from comfyfarm.cache.places.place import ObjectPlace
from comfyfarm.cli.edge import ends_with_exit_code, say
from comfyfarm.cli.mirror_place import mirror_at
from comfyfarm.cli.progress import bytes_bar
from comfyfarm.errors import StoreError, UsageError
from comfyfarm.workflow.shown import counted


@click.command("verify")
@click.argument("shas", nargs=-1, metavar="[SHA256]...")
@click.option("--mirror", required=True, metavar="DIR|s3://…")
@click.option("--all", "all_files", is_flag=True, help="All that it holds; so it is without any SHA256.")
@click.option("--deep", is_flag=True, help="Read every byte back; names the 16 MiB parts that are wrong.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line for each problem.")
@ends_with_exit_code
def verify(shas: tuple[str, ...], mirror: str, all_files: bool, deep: bool, as_json: bool) -> None:
    """Check sizes and the server's own checksums; exit 3 when something is wrong."""
    _check_words(shas, all_files=all_files)
    found = asyncio.run(_verify(mirror_at(mirror), shas, deep=deep))
    for problem in found.problems:
        names = f" ({', '.join(problem.names)})" if problem.names else ""
        line = f"{problem.sha256}{names}: {problem.code}: {problem.detail}"
        click.echo(problem.model_dump_json() if as_json else line)
    if found.by_size_only:
        files = counted(len(found.by_size_only), "file")
        say(f"{files} checked by size alone: nothing here knows the bytes without reading them; --deep does")
    if found.problems:
        files = counted(found.checked, "file")
        mend = f"comfyfarm mirror add{' --deep' * deep} FILE"
        say(f"{len(found.problems)} of {files} wrong; `{mend}` mends")
        sys.exit(StoreError.exit_code)
    if found.checked > len(found.by_size_only) or not found.checked:
        say(f"{counted(found.checked - len(found.by_size_only), 'file')} verified")


def _check_words(shas: tuple[str, ...], *, all_files: bool) -> None:
    if shas and all_files:
        raise UsageError("--all and single files at once; leave one out")
    if wrong := [sha for sha in shas if not re.fullmatch(r"[0-9a-f]{64}", sha)]:
        raise UsageError(f"{wrong[0]}: is no SHA-256 (64 of 0-9 and a-f); `comfyfarm mirror ls` lists them")


async def _verify(place: ObjectPlace, shas: tuple[str, ...], *, deep: bool) -> Verified:
    inventory = await take_inventory(place)
    wanted = shas or everything(inventory)
    total = sum(inventory.blobs[sha].size for sha in wanted if sha in inventory.blobs)
    with bytes_bar("reading", total if deep else 0) as advance:
        return await verify_files(place, wanted, deep=deep, on_bytes=advance)
