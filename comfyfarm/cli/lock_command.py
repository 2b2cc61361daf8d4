"""`comfyfarm lock [make] FILE… --catalog …`: pins what workflows name, or says all that is missing."""

from pathlib import Path

import click

from comfyfarm.addresses import is_address, read_bytes
from comfyfarm.cli.edge import ends_with_exit_code, say
from comfyfarm.cli.progress import bytes_so_far_bar
from comfyfarm.cli.schema_option import load_schema, schema_options
from comfyfarm.cli.whole_file import whole_file
from comfyfarm.errors import UsageError
from comfyfarm.farm.sources import WORKFLOW_LIMIT_BYTES
from comfyfarm.lock.catalogue import read_catalogue
from comfyfarm.lock.listing import Catalogue
from comfyfarm.lock.lockfile import write_lock
from comfyfarm.lock.models_folder import catalogue_from_dir
from comfyfarm.lock.resolve import make_lock
from comfyfarm.settings import read_settings
from comfyfarm.workflow.reader import read_workflow
from comfyfarm.workflow.references import find_references

_CATALOGUE_LIMIT_BYTES = 256 * 1024 * 1024
_RESERVED = {"verify", "diff", "update"}


@click.command("lock")
@click.argument("files", nargs=-1, required=True, metavar="[make] FILE...")
@click.option(
    "--catalog", "catalogue", required=True, metavar="FILE|DIR|URL", help="Where models are described."
)
@click.option("-o", "--output", default="comfyfarm.lock", show_default=True, type=click.Path(path_type=Path))
@schema_options
@ends_with_exit_code
def command(
    files: tuple[str, ...], catalogue: str, output: Path, schema: str | None, schema_from: str | None
) -> None:
    """Pin every model that workflows name, by content. Says all missing names at once (exit 1)."""
    names = files[1:] if files[0] == "make" else files
    if files[0] in _RESERVED or not names:
        raise UsageError(f"comfyfarm lock {files[0]} is not there yet; name workflow files")
    node_schema = load_schema(schema, schema_from)
    references = [
        find_references(
            read_workflow(read_bytes(name, limit_bytes=WORKFLOW_LIMIT_BYTES), name=name), node_schema
        )
        for name in names
    ]
    lock = make_lock(references, _catalogue(catalogue), schema_sha256=node_schema.sha256)
    with whole_file(output) as partial:
        partial.write_bytes(write_lock(lock))
    say(f"{output}: {len(lock.models)} models pinned")


def _catalogue(name: str) -> Catalogue:
    if not is_address(name) and Path(name).is_dir():
        with bytes_so_far_bar("hashing") as show:
            return catalogue_from_dir(
                Path(name),
                state_dir=read_settings().state_dir,
                progress=lambda _file, done, total: show(done, total),
            )
    return read_catalogue(read_bytes(name, limit_bytes=_CATALOGUE_LIMIT_BYTES), name=name)
