"""`comfyfarm lock verify`: whether locked files are where they should be, and workflows are covered."""

import json
import sys
import unicodedata
from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from comfyfarm.addresses import expanded, is_address, local_path, mask
from comfyfarm.cli.catalogues import Wants, open_catalogue
from comfyfarm.cli.edge import ends_with_exit_code, say, say_findings
from comfyfarm.cli.lock_files import DEFAULT_LOCK, json_when_refused, open_lock
from comfyfarm.cli.lock_workflows import pickles, read_workflows
from comfyfarm.cli.model_bytes import sizes_at
from comfyfarm.cli.pack_options import PackSources, known_index, pack_options
from comfyfarm.cli.projects import load_projects
from comfyfarm.cli.schema_option import load_schema, schema_options
from comfyfarm.errors import UsageError
from comfyfarm.lock.hash_store import HashStore
from comfyfarm.lock.lockfile import Lock
from comfyfarm.lock.mirror_listing import is_mirror
from comfyfarm.lock.verify import (
    SILENT,
    check_blobs,
    check_cover,
    check_models_folder,
    check_packs,
    check_schema,
    check_sources,
)
from comfyfarm.settings import read_settings
from comfyfarm.workflow.findings import Finding, has_errors, warning
from comfyfarm.workflow.schema import NodeSchema
from comfyfarm.workflow.shown import counted


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
@pack_options
@click.option("--json", "as_json", is_flag=True, help="One JSON object with all findings.")
@ends_with_exit_code
def verify_command(
    files: tuple[str, ...],
    against: tuple[str, ...],
    schema: str | None,
    schema_from: str | None,
    node_map: tuple[str, ...],
    custom_nodes: str | None,
    host_packs: str | None,
    config: str | None,
    *,
    cache: bool,
    as_json: bool,
) -> None:
    """Whether every locked file is where it should be, and the lock covers the workflows.

    The first argument is the lock. With workflows, what `lock make` would say of their node packs and
    policy is said here, too; the options for packs count only with them.

    Exit status: 1 names every difference; 3 when the only fault is a source that gives no answer.
    """
    name = files[0] if files else DEFAULT_LOCK
    places = (*against, *((str(read_settings().cache_dir),) if cache else ()))
    findings: list[Finding] = []
    with json_when_refused(as_json, findings, lock=mask(name)):
        lock = open_lock(name)
        if len(files) < 2 and any((node_map, custom_nodes, host_packs, config)):
            raise UsageError(
                "--node-map, --custom-nodes, --host-packs and --config count with a WORKFLOW only"
            )
        findings.extend(_files(lock, places))
        if len(files) > 1 or schema is not None or schema_from is not None:
            classes = load_schema(schema, schema_from)
            if len(files) > 1:
                sources = PackSources(node_map, custom_nodes, host_packs, schema_from)
                findings.extend(_cover(lock, files[1:], classes, sources, config=config, lock_name=name))
            findings.extend(check_schema(lock, classes))
    if as_json:
        rows = [finding.model_dump(mode="json") for finding in findings]
        click.echo(json.dumps({"lock": mask(name), "findings": rows}, ensure_ascii=False))
    say_findings(findings)
    if not has_errors(findings):
        say(f"{mask(name)}: {_looked_at(lock, places)}")
        return
    wrong = [finding for finding in findings if has_errors([finding])]
    sys.exit(3 if all(finding.code == SILENT for finding in wrong) else 1)


def _looked_at(lock: Lock, places: Sequence[str]) -> str:
    count = len(lock.models)
    bare = 0 if places else sum(not model.sources for model in lock.models)
    if not bare:
        return f"{counted(count, 'model')} as locked"
    has = "has" if bare == 1 else "have"
    return f"{count - bare} of {counted(count, 'model')} as locked; {bare} {has} no source to look at"


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
        from comfyfarm.cache.mirrors.entry import mirror_source

        address = {model.sha256: mirror_source(place, model.sha256) for model in lock.models}
        size_at = sizes_at(address.values())
        yield from check_blobs(lock, name=place, size_at=lambda sha: size_at(address[sha]), hashes=None)
        return
    folder = expanded(local_path(place) or Path(place)).absolute()
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder}: is no folder; name a models folder, a mirror or a cache")
    # What does not exist yet is an empty cache: all of the lock is missing in it.
    if not folder.exists():
        remedy = "correct the path, or fill it: comfyfarm hydrate"
        yield warning("no_such_place", f"{folder} does not exist", remedy)
    if is_mirror(folder) or not folder.exists():
        yield from check_blobs(lock, name=str(folder), size_at=lambda _sha: None, hashes=hashes)
        return
    found = open_catalogue(str(folder), wants=wants_of(lock))
    yield from check_models_folder(lock, found, name=str(folder))


def _cover(
    lock: Lock,
    names: Sequence[str],
    schema: NodeSchema,
    sources: PackSources,
    *,
    config: str | None,
    lock_name: str,
) -> Iterator[Finding]:
    projects = load_projects(config, names)
    workflows = read_workflows(names, schema, known_index(sources), projects=projects)
    yield from check_cover(lock, zip(names, workflows.references, strict=True), lock_name=lock_name)
    for name, packs in zip(names, workflows.packs, strict=True):
        yield from check_packs(lock, packs.needed, workflow=mask(name))
    yield from workflows.findings
    yield from pickles(lock, workflows, projects)


def wants_of(lock: Lock) -> Wants:
    """Only what the lock names has to be hashed."""
    paths = {unicodedata.normalize("NFC", model.path) for model in lock.models}
    return lambda _folder, path: unicodedata.normalize("NFC", path) in paths
