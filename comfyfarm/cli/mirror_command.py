"""`comfyfarm mirror add`: model files into a mirror, under their SHA-256."""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path

import click

from comfyfarm.cache.mirrors.add import add_file
from comfyfarm.cache.places.objects import ObjectPlace, open_place
from comfyfarm.cli.edge import ends_with_exit_code
from comfyfarm.cli.progress import Advance, bytes_bar


@click.group("mirror")
def command() -> None:
    """The object store, or folder, with model files under their SHA-256."""


@command.command("add")
@click.argument(
    "files", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path)
)
@click.option("--mirror", required=True, metavar="DIR|s3://…")
@click.option("--folder", help="Models folder of ComfyUI, such as checkpoints.")
@click.option("--source", help="Where the file comes from.")
@click.option("--licence", help="The file's licence.")
@ends_with_exit_code
def add(
    files: tuple[Path, ...], mirror: str, folder: str | None, source: str | None, licence: str | None
) -> None:
    """Put FILES into the mirror; the same bytes twice are one object."""
    place = open_place(mirror)
    known = {"folder": folder, "source": source, "licence": licence}
    # Each byte twice: once read for its hash, once sent.
    with bytes_bar("mirror", 2 * sum(file.stat().st_size for file in files)) as advance:
        asyncio.run(_add_all(place, files, known, advance))


async def _add_all(
    place: ObjectPlace, files: Sequence[Path], known: Mapping[str, str | None], advance: Advance
) -> None:
    """One after the other: a file goes up in parts side by side already."""
    for file in files:
        entry = await add_file(place, file, names=(file.name,), **known, on_bytes=advance)
        click.echo(f"{entry.sha256}  {file}")
