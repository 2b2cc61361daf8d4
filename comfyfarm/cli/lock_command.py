"""`comfyfarm lock [make] FILE… --catalog …`, and `verify`, `diff`, `update` of what it has written."""

import difflib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from comfyfarm.addresses import mask, read_bytes
from comfyfarm.cli.catalogues import Found, Wants, open_catalogue, open_import
from comfyfarm.cli.edge import ends_with_exit_code, say, say_findings
from comfyfarm.cli.lock_change_commands import diff_command, update_command
from comfyfarm.cli.lock_environment import (
    EnvironmentOptions,
    comfyui_version,
    environment_options,
    solved,
)
from comfyfarm.cli.lock_files import as_findings
from comfyfarm.cli.lock_verify_command import verify_command
from comfyfarm.cli.lock_workflows import Wanted, pickles, read_workflows
from comfyfarm.cli.model_bytes import source_opener, web_size
from comfyfarm.cli.pack_options import (
    PackSources,
    check_web_address,
    known_index,
    online_pack_options,
    pack_options,
)
from comfyfarm.cli.projects import load_projects
from comfyfarm.cli.schema_option import load_schema, schema_options
from comfyfarm.cli.whole_file import whole_file
from comfyfarm.errors import InputError, UsageError
from comfyfarm.farm.sources import LOCK_LIMIT_BYTES
from comfyfarm.lock.catalogue import Catalogue, merge
from comfyfarm.lock.headers import with_headers
from comfyfarm.lock.host_packs import host_index
from comfyfarm.lock.locked_packs import locked_packs
from comfyfarm.lock.lockfile import Lock, read_lock, write_lock
from comfyfarm.lock.match import wanted
from comfyfarm.lock.pins import dropped_pins, make_lock, needs_of
from comfyfarm.lock.source_secrets import secret_findings
from comfyfarm.workflow.findings import Finding, Refused, has_errors
from comfyfarm.workflow.packs.index import merged
from comfyfarm.workflow.schema import NodeSchema
from comfyfarm.workflow.shown import counted


@dataclass(frozen=True)
class _Asked:
    """What a lock is made of."""

    files: tuple[str, ...]
    catalogues: tuple[str, ...]
    imports: tuple[str, ...]
    output: Path
    schema: str | None
    config: str | None
    registry: str | None
    ask_remotes: bool
    packs: PackSources
    environment: EnvironmentOptions


class _LockGroup(click.Group):
    """`make` may be left out: what is no subcommand is a file. A file called `verify` needs the `make`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put the `make` in.

        Raises:
            UsageError: the first word is no file, and much like a subcommand.
        """
        if args and args[0] not in self.commands and args[0] not in {"-h", "--help"}:
            self._refuse_slip(args[0])
            args = ["make", *args]
        return super().parse_args(ctx, args)

    def _refuse_slip(self, word: str) -> None:
        near = difflib.get_close_matches(word, self.commands, n=1, cutoff=0.7)
        if near and not Path(word).exists():
            raise click.UsageError(f"{word!r} is neither a file nor a subcommand; is {near[0]!r} meant?")


@click.group(
    "lock",
    cls=_LockGroup,
    subcommand_metavar="[make] FILE... | verify | diff | update",
    epilog="comfyfarm lock make --help tells the options of a new lock, --catalog above all.",
)
def command() -> None:
    """Pin every model that workflows name, by content. Without a subcommand it is `make`."""


command.add_command(verify_command)
command.add_command(diff_command)
command.add_command(update_command)


@command.command("make")
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option(
    "--catalog",
    "catalogues",
    multiple=True,
    metavar="FILE|DIR|URL",
    help="Where models are described: a list, a models folder, extra_model_paths.yaml, a mirror. Repeatable.",
)
@click.option(
    "--import",
    "imports",
    multiple=True,
    metavar="FILE",
    help="What others know: a snapshot of ComfyUI-Manager or comfy-pack, a workflow with models' hashes.",
)
@click.option("-o", "--output", default="comfyfarm.lock", show_default=True, type=click.Path(path_type=Path))
@schema_options
@pack_options
@online_pack_options
@environment_options
@click.option(
    "--save-schema",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write the node classes down, for `preflight --schema FILE`.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object: what is pinned, missing and wrong.")
@ends_with_exit_code
def make(
    files: tuple[str, ...],
    catalogues: tuple[str, ...],
    imports: tuple[str, ...],
    output: Path,
    schema: str | None,
    schema_from: str | None,
    node_map: tuple[str, ...],
    custom_nodes: str | None,
    host_packs: str | None,
    config: str | None,
    registry: str | None,
    environment: EnvironmentOptions,
    save_schema: Path | None,
    *,
    ask_remotes: bool,
    as_json: bool,
) -> None:
    """Pin every model that workflows name, by content. Says all missing names at once (exit 1).

    The lock also lists what is needed and cannot be pinned, such as node packs without a commit.
    """
    if not catalogues and not imports:
        raise UsageError("name where models are described: --catalog FILE|DIR|URL")
    environment.check()
    check_web_address("--registry", registry)
    sources = PackSources(node_map, custom_nodes, host_packs, schema_from)
    asked = _Asked(
        files=files, catalogues=catalogues, imports=imports, output=output, schema=schema, config=config,
        registry=registry, ask_remotes=ask_remotes, packs=sources, environment=environment,
    )  # fmt: skip
    notes: dict[Finding, None] = {}
    try:
        lock, classes = _lock(asked, notes)
    except InputError as exc:
        told = dict.fromkeys(as_findings(exc))
        say_findings(note for note in notes if note not in told)  # the others the error itself says
        if as_json:
            _print(output, None, [*(note for note in notes if note not in told), *told])
        raise
    if save_schema is not None:
        with whole_file(save_schema) as partial:
            partial.write_text(_saved(classes), encoding="ascii")
    with whole_file(output) as partial:
        partial.write_bytes(write_lock(lock))
    say_findings(notes)
    if as_json:
        _print(output, lock, list(notes))
    say(f"{mask(str(output))}: {_summary(lock)}")


def _summary(lock: Lock) -> str:
    packs = f", {counted(len(lock.packs), 'node pack')}" if lock.packs else ""
    lacks = f"; {len(lock.missing)} not pinned, see `missing`" if lock.missing else ""
    return f"{counted(len(lock.models), 'model')} pinned{packs}{lacks}"


def _saved(schema: NodeSchema) -> str:
    """One class a line. Inside it the order counts: it is that of the editor's widgets."""
    rows = (f"{json.dumps(name)}: {json.dumps(raw)}" for name, raw in sorted(schema.to_saved().items()))
    return "{\n" + ",\n".join(rows) + "\n}\n"


def _lock(asked: _Asked, notes: dict[Finding, None]) -> tuple[Lock, NodeSchema]:
    """The lock and the classes it is made with, and as notes what there is to know; errors stop it."""
    schema = load_schema(asked.schema, asked.packs.schema_from)
    projects = load_projects(asked.config, asked.files)
    index = known_index(asked.packs)
    found = [open_import(name) for name in asked.imports]
    index = merged([index, *(host_index(one.imported.installed) for one in found)])
    workflows = read_workflows(
        asked.files, schema, index,
        projects=projects, registry=asked.registry, ask_remotes=asked.ask_remotes,
    )  # fmt: skip
    notes.update(dict.fromkeys(workflows.findings))
    warnings: list[Finding] = []
    earlier = _earlier(asked.output)
    lock = _made(asked, schema, workflows, found, warnings, pinned=earlier)
    needed = [row for resolution in workflows.packs for row in resolution.needed]
    python = solved(asked.environment, needed, index, warnings, custom_nodes=asked.packs.custom_nodes)
    if python is not None:
        lock = lock.model_copy(update={"python": python})
    notes.update(dict.fromkeys([*warnings, *pickles(lock, workflows, projects)]))
    wrong = [note for note in notes if has_errors([note])]
    if wrong:
        raise Refused(asked.files[0] if len(asked.files) == 1 else "the workflows", wrong)
    if earlier is not None:
        notes.update(dict.fromkeys(dropped_pins(earlier, lock, name=mask(str(asked.output)))))
    return lock, schema


def _made(
    asked: _Asked,
    schema: NodeSchema,
    workflows: Wanted,
    found: Sequence[Found],
    notes: list[Finding],
    *,
    pinned: Lock | None,
) -> Lock:
    wants = wanted(needs_of(workflows.references))
    packs, missing = locked_packs(workflows.packs, [pack for one in found for pack in one.imported.packs])
    version = comfyui_version(
        asked.environment, found, schema=asked.schema, schema_from=asked.packs.schema_from
    )
    lock = make_lock(
        workflows.references,
        _opened(asked.catalogues, found, wants),
        schema_sha256=schema.sha256,
        comfyui=version,
        packs=packs,
        missing=(*missing, *(item for one in found for item in one.imported.missing)),
        python=next((one.imported.python for one in found if one.imported.python is not None), None),
        hints=(*workflows.hints, *(hint for one in found for hint in one.hints)),
        pinned=pinned,
        size_of=web_size,
        warnings=notes,
    )
    lock, bad = with_headers(lock, source_opener(asked.catalogues))
    notes.extend(bad)
    notes.extend(secret_findings(lock))
    notes.extend(finding for one in found for finding in one.imported.findings)
    return lock


def _opened(names: Sequence[str], found: Sequence[Found], wants: Wants) -> Catalogue:
    return merge(
        [*(open_catalogue(name, wants=wants) for name in names), *(one.imported.catalogue for one in found)]
    )


def _earlier(output: Path) -> Lock | None:
    """The lock that is written over: it decides where a name stands for several contents."""
    try:
        return read_lock(read_bytes(str(output), limit_bytes=LOCK_LIMIT_BYTES), name=str(output))
    except InputError:  # none, or none that can be read: then there is nothing to keep to
        return None


def _print(output: Path, lock: Lock | None, notes: Sequence[Finding]) -> None:
    raw = {
        "lock": str(output) if lock is not None else None,
        "models": len(lock.models) if lock is not None else 0,
        "packs": len(lock.packs) if lock is not None else 0,
        "missing": [item.model_dump(mode="json") for item in lock.missing] if lock is not None else [],
        "findings": [note.model_dump(mode="json") for note in notes],
    }
    click.echo(json.dumps(raw, ensure_ascii=False))
