"""`comfyfarm lock diff|update`: what changed between two locks, and what is new under a lock's names."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from comfyfarm.addresses import is_address, mask
from comfyfarm.cli.catalogues import open_catalogue
from comfyfarm.cli.edge import ends_with_exit_code, say, say_findings
from comfyfarm.cli.lock_files import DEFAULT_LOCK, json_when_refused, open_lock
from comfyfarm.cli.lock_verify_command import wants_of
from comfyfarm.cli.model_bytes import source_opener
from comfyfarm.cli.whole_file import whole_file
from comfyfarm.errors import UsageError
from comfyfarm.lock.catalogue import merge
from comfyfarm.lock.diff import Change, diff
from comfyfarm.lock.headers import with_headers
from comfyfarm.lock.lockfile import Lock, write_lock
from comfyfarm.lock.source_secrets import secret_findings
from comfyfarm.lock.update import update_lock
from comfyfarm.workflow.shown import counted


@click.command("diff")
@click.argument("old", metavar="OLD")
@click.argument("new", metavar="NEW")
@click.option("--json", "as_json", is_flag=True, help="One JSON object with every change.")
@ends_with_exit_code
def diff_command(old: str, new: str, *, as_json: bool) -> None:
    """What the lock NEW has that OLD has not, and the other way round. Exit 0 when nothing, else 1."""
    with json_when_refused(as_json, old=mask(old), new=mask(new), changes=[]):
        changes = diff(open_lock(old), open_lock(new))
    if as_json:
        rows = [change.model_dump(mode="json") for change in changes]
        click.echo(json.dumps({"old": mask(old), "new": mask(new), "changes": rows}, ensure_ascii=False))
    else:
        _print(changes)
    sys.exit(1 if changes else 0)


@click.command("update")
@click.argument("words", nargs=-1, metavar="[LOCK] [NAME...]")
@click.option(
    "--catalog",
    "catalogues",
    multiple=True,
    required=True,
    metavar="FILE|DIR|URL",
    help="Where models are described. Repeatable.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object with every change.")
@ends_with_exit_code
def update_command(words: tuple[str, ...], catalogues: tuple[str, ...], *, as_json: bool) -> None:
    """Look up the lock's names anew, all or NAME…, and keep everything else as it is.

    NAME is `folder/path`, the path, its last part, or the id of a hub repo. The first word is the lock when
    it is a file. Nothing is written unless all of it can be.
    """
    name, names = _split(words)
    if is_address(name):
        raise UsageError(f"{mask(name)}: a lock is updated as a file; copy it here")
    with json_when_refused(as_json, lock=name, changes=[]):
        before = open_lock(name)
        after = _updated(before, names, catalogues)
    changes = diff(before, after)
    if changes:
        with whole_file(Path(name)) as partial:
            partial.write_bytes(write_lock(after))
    if as_json:
        rows = [change.model_dump(mode="json") for change in changes]
        click.echo(json.dumps({"lock": name, "changes": rows}, ensure_ascii=False))
    else:
        _print(changes)
    say(f"{name}: {counted(len(changes), 'change')}")


def _updated(before: Lock, names: Sequence[str], catalogues: Sequence[str]) -> Lock:
    catalogue = merge([open_catalogue(one, wants=wants_of(before)) for one in catalogues])
    after = update_lock(before, catalogue, names=names)
    after, bad = with_headers(after, source_opener(catalogues))
    say_findings([*bad, *secret_findings(after)])
    return after


def _split(words: Sequence[str]) -> tuple[str, tuple[str, ...]]:
    if words and (is_address(words[0]) or Path(words[0]).is_file() or words[0].endswith(".lock")):
        return words[0], tuple(words[1:])
    return DEFAULT_LOCK, tuple(words)


def _print(changes: Sequence[Change]) -> None:
    for change in changes:
        click.echo(str(change))
