"""`comfyfarm mirror`: model files under their SHA-256 in a bucket or folder."""

import asyncio
import json
from collections.abc import Mapping

import click

from comfyfarm.cache.mirrors.clean import title
from comfyfarm.cache.mirrors.entry import MirrorEntry
from comfyfarm.cache.mirrors.inventory import Inventory, read_entries, take_inventory
from comfyfarm.cache.mirrors.verify import everything
from comfyfarm.cache.places.place import ObjectPlace
from comfyfarm.cli.edge import ends_with_exit_code, say
from comfyfarm.cli.mirror_add import add
from comfyfarm.cli.mirror_clean import gc
from comfyfarm.cli.mirror_place import mirror_at
from comfyfarm.cli.mirror_sign import sign
from comfyfarm.cli.mirror_verify import verify
from comfyfarm.plan.host_plan import bytes_text
from comfyfarm.workflow.shown import counted


@click.group("mirror")
def command() -> None:
    """The object store, or folder, with model files under their SHA-256."""


@command.command("ls")
@click.option("--mirror", required=True, metavar="DIR|s3://…")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
@ends_with_exit_code
def ls(mirror: str, as_json: bool) -> None:
    """List what the mirror holds."""
    inventory, entries = asyncio.run(_look(mirror_at(mirror)))
    titles = {sha256: title(entry) if entry else "" for sha256, entry in entries.items()}
    shas = sorted(entries, key=lambda sha256: (titles[sha256], sha256))
    for sha256 in shas:
        click.echo(_json(sha256, inventory, entries) if as_json else _row(sha256, inventory, entries))
    total = sum(listed.size for listed in inventory.blobs.values())
    say(f"{counted(len(inventory.blobs), 'file')}, {bytes_text(total)}")


Entries = Mapping[str, MirrorEntry | None]


async def _look(place: ObjectPlace) -> tuple[Inventory, Entries]:
    inventory = await take_inventory(place)
    known = await read_entries(place, inventory.metas)
    return inventory, {sha256: known.get(sha256) for sha256 in everything(inventory)}


def _json(sha256: str, inventory: Inventory, entries: Entries) -> str:
    entry, blob = entries[sha256], inventory.blobs.get(sha256)
    row = {
        "sha256": sha256,
        "names": entry.names if entry else (),
        "folder": entry.folder if entry else None,
        "size": blob.size if blob else None,
        "source": entry.source if entry else None,
        "licence": entry.licence if entry else None,
    }
    return json.dumps(row, ensure_ascii=False)


def _row(sha256: str, inventory: Inventory, entries: Entries) -> str:
    entry, blob = entries[sha256], inventory.blobs.get(sha256)
    size = bytes_text(blob.size) if blob else "no file"
    words = ", ".join(entry.names) if entry else "(nothing is known of it)"
    licence = f"  [{entry.licence}]" if entry and entry.licence else ""
    return f"{sha256}  {size:>10}  {(entry.folder if entry else None) or '-':<20}  {words}{licence}"


for _one in (add, verify, gc, sign):
    command.add_command(_one)
