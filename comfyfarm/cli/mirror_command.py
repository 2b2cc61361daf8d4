"""`comfyfarm mirror add`: model files into a mirror, under their SHA-256."""

import asyncio
from pathlib import Path

import click

from comfyfarm.cache.mirror import add_file
from comfyfarm.cache.objects import open_place
from comfyfarm.cli.edge import ends_with_exit_code


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
    for file in files:
        entry = asyncio.run(
            add_file(place, file, names=(file.name,), folder=folder, source=source, licence=licence)
        )
        click.echo(f"{entry.sha256}  {file}")
