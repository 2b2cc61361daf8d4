"""`comfyfarm lock verify|diff|update`: whether a lock still holds, what changed, and what is new."""

import json
import sys
import unicodedata
from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from comfyfarm.addresses import expanded, is_address, mask, read_bytes
from comfyfarm.cli.catalogues import Wants, open_catalogue
from comfyfarm.cli.edge import ends_with_exit_code, say
from comfyfarm.cli.lock_workflows import read_workflows
from comfyfarm.cli.model_bytes import sizes_at, source_opener
from comfyfarm.cli.pack_options import KnownPacks
from comfyfarm.cli.schema_option import load_schema, schema_options
from comfyfarm.cli.whole_file import whole_file
from comfyfarm.errors import UsageError
from comfyfarm.farm.sources import LOCK_LIMIT_BYTES
from comfyfarm.lock.diff import Change, diff
from comfyfarm.lock.hash_store import HashStore
from comfyfarm.lock.headers import with_headers
from comfyfarm.lock.listing import merge
from comfyfarm.lock.lockfile import Lock, read_lock, write_lock
from comfyfarm.lock.mirror_listing import is_mirror
from comfyfarm.lock.project_file import ProjectFile
from comfyfarm.lock.update import update_lock
from comfyfarm.lock.verify import (
    SILENT,
    check_blobs,
    check_cover,
    check_models_folder,
    check_packs,
    check_schema,
    check_sources,
    local_path,
)
from comfyfarm.settings import read_settings
from comfyfarm.workflow.findings import Finding, Severity, has_errors
from comfyfarm.workflow.packs.index import PackIndex
from comfyfarm.workflow.schema import NodeSchema

DEFAULT_LOCK = "comfyfarm.lock"


def _read(name: str) -> Lock:
    return read_lock(read_bytes(name, limit_bytes=LOCK_LIMIT_BYTES), name=name)


@click.command("verify")
@click.argument("files", nargs=-1, metavar="[LOCK] [WORKFLOW...]")
@click.option(
    "--against",
    multiple=True,
    metavar="DIR|MIRROR",
    help="A models folder, mirror or cache that must have all of it (default: the lock's own sources).",
)
@click.option("--cache", is_flag=True, help="This host's cache must have all of it.")
@schema_options
@click.option("--json", "as_json", is_flag=True, help="One JSON object with all findings.")
@ends_with_exit_code
def verify_command(
    files: tuple[str, ...],
    against: tuple[str, ...],
    schema: str | None,
    schema_from: str | None,
    *,
    cache: bool,
    as_json: bool,
) -> None:
    """Whether every locked file is where it should be, and the lock covers the workflows.

    Exit 1 names every difference; 3 when the only fault is a source that gives no answer.
    """
    name = files[0] if files else DEFAULT_LOCK
    lock = _read(name)
    places = (*against, *((str(read_settings().cache_dir),) if cache else ()))
    findings = list(_files(lock, places))
    if len(files) > 1 or schema or schema_from:
        node_schema = load_schema(schema, schema_from)
        findings.extend(_cover(lock, files[1:], node_schema, lock_name=name) if files[1:] else ())
        findings.extend(check_schema(lock, node_schema))
    if as_json:
        rows = [finding.model_dump(mode="json") for finding in findings]
        click.echo(json.dumps({"lock": mask(name), "findings": rows}, ensure_ascii=False))
    for finding in findings:
        if finding.severity is not Severity.INFO:
            say(f"{finding.severity}: {finding.code}: {finding}")
    if not has_errors(findings):
        say(f"{mask(name)}: {len(lock.models)} models as locked")
        return
    wrong = [finding for finding in findings if has_errors([finding])]
    sys.exit(3 if all(finding.code == SILENT for finding in wrong) else 1)


def _files(lock: Lock, places: Sequence[str]) -> Iterator[Finding]:
    hashes = HashStore(read_settings().state_dir)
    try:
        for place in places:
            yield from _against(lock, place, hashes)
        if not places:
            remote = [s for model in lock.models for s in model.sources if local_path(s) is None]
            yield from check_sources(lock, size_at=sizes_at(remote), hashes=hashes)
    finally:
        hashes.save()


def _against(lock: Lock, place: str, hashes: HashStore) -> Iterator[Finding]:
    if is_address(place) and local_path(place) is None:
        from comfyfarm.cache.mirror import mirror_source

        address = {model.sha256: mirror_source(place, model.sha256) for model in lock.models}
        size_at = sizes_at(address.values())
        yield from check_blobs(lock, name=place, size_at=lambda sha: size_at(address[sha]), hashes=None)
        return
    folder = expanded(local_path(place) or Path(place)).absolute()
    if not folder.is_dir():
        raise UsageError(f"{folder}: there is no such folder")
    if is_mirror(folder):
        yield from check_blobs(lock, name=str(folder), size_at=lambda _sha: None, hashes=hashes)
        return
    found = open_catalogue(str(folder), wants=_wants(lock))
    yield from check_models_folder(lock, found, name=str(folder))


def _cover(lock: Lock, names: Sequence[str], schema: NodeSchema, *, lock_name: str) -> Iterator[Finding]:
    workflows = read_workflows(names, schema, KnownPacks(PackIndex(), ProjectFile()))
    yield from check_cover(lock, zip(names, workflows.references, strict=True), lock_name=lock_name)
    for name, packs in zip(names, workflows.packs, strict=True):
        yield from check_packs(lock, packs.needed, workflow=mask(name))


@click.command("diff")
@click.argument("old", metavar="OLD")
@click.argument("new", metavar="NEW")
@click.option("--json", "as_json", is_flag=True, help="One JSON object with every change.")
@ends_with_exit_code
def diff_command(old: str, new: str, *, as_json: bool) -> None:
    """What the lock NEW has that OLD has not, and the other way round. Exit 0 when nothing, else 1."""
    changes = diff(_read(old), _read(new))
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
    before = _read(name)
    catalogue = merge([open_catalogue(one, wants=_wants(before)) for one in catalogues])
    after = update_lock(before, catalogue, names=names)
    after, bad = with_headers(after, source_opener(catalogues))
    for finding in bad:
        say(f"warning: {finding.code}: {finding}")
    changes = diff(before, after)
    if changes:
        with whole_file(Path(name)) as partial:
            partial.write_bytes(write_lock(after))
    if as_json:
        rows = [change.model_dump(mode="json") for change in changes]
        click.echo(json.dumps({"lock": name, "changes": rows}, ensure_ascii=False))
    else:
        _print(changes)
    say(f"{name}: {len(changes)} changes")


def _wants(lock: Lock) -> Wants:
    """Only what the lock names has to be hashed."""
    paths = {unicodedata.normalize("NFC", model.path) for model in lock.models}
    return lambda _folder, path: unicodedata.normalize("NFC", path) in paths


def _split(words: Sequence[str]) -> tuple[str, tuple[str, ...]]:
    if words and (is_address(words[0]) or Path(words[0]).is_file() or words[0].endswith(".lock")):
        return words[0], tuple(words[1:])
    return DEFAULT_LOCK, tuple(words)


def _print(changes: Sequence[Change]) -> None:
    for change in changes:
        click.echo(str(change))
