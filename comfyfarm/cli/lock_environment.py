"""What a lock says besides models: the version of ComfyUI, and the Python environment."""

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click
from pydantic import JsonValue

from comfyfarm.addresses import expanded
from comfyfarm.cli.catalogues import Found
from comfyfarm.errors import UsageError
from comfyfarm.workflow.findings import Finding
from comfyfarm.workflow.packs.index import InstalledPack, PackIndex
from comfyfarm.workflow.packs.pack import Pack

Function = TypeVar("Function", bound=Callable[..., Any])

SHIPPED_VERSION = "0.27"
"""Of the node classes that are shipped: a lock made with them is made for it."""
_FOR_SOLVING = ("wheelhouse", "python_version", "platform")
_PYTHON = re.compile(r"3\.\d{1,2}(?:\.\d{1,3})?")
_PLATFORM = re.compile(
    r"windows|linux|macos"
    r"|[a-z0-9_]+-(?:unknown-linux(?:-(?:gnu|musl)[a-z]*)?|pc-windows-msvc|apple-[a-z]+(?:-[a-z]+)?"
    r"|manylinux(?:\d+|_\d+_\d+)|linux-android[a-z]*)"
    r"|wasm32-[a-z0-9_-]+|arm64-apple-[a-z]+(?:-[a-z]+)?"
)
"""Names of platforms as uv has them; one that has this form and is none uv refuses itself."""
_VERSION = re.compile(r"""^__version__\s*=\s*["']([^"']{1,60})["']""", re.MULTILINE)


def environment_options(function: Function) -> Function:
    """Parameters `comfyui`, `comfyui_version`, `wheelhouse`, `python_version`, `platform`."""
    options = (
        click.option("--comfyui", metavar="DIR", help="A checkout of ComfyUI: its version and requirements."),
        click.option("--comfyui-version", metavar="VERSION", help="Version of ComfyUI that the lock is for."),
        click.option("--wheelhouse", metavar="DIR", help="Wheels to solve the Python environment from."),
        click.option("--python-version", metavar="X.Y", help="Python of the servers (default: this one)."),
        click.option("--platform", metavar="TRIPLE", help="Platform of the servers, as uv names it."),
    )
    for option in reversed(options):
        function = option(function)
    return function


def check_environment_options(options: Mapping[str, Any]) -> None:
    """Refuse values that are none, and options that would not count, before anything is asked.

    Raises:
        UsageError: one of them is so.
    """
    names = {key: f"--{key.replace('_', '-')}" for key in ("comfyui", "comfyui_version", *_FOR_SOLVING)}
    for key, name in names.items():
        if options[key] is not None and not options[key].strip():
            raise UsageError(f"{name} is empty; leave it out, or give a value")
    idle = [names[key] for key in _FOR_SOLVING if options[key] is not None and options["comfyui"] is None]
    if idle:
        said = f"{', '.join(idle)}: only the Python environment needs {'it' if len(idle) == 1 else 'them'}"
        raise UsageError(f"{said}, which is solved with --comfyui DIR; give that, too, or leave them out")
    version, platform, wheels = (options[key] for key in ("python_version", "platform", "wheelhouse"))
    if version is not None and not _PYTHON.fullmatch(version):
        raise UsageError(f"--python-version {version[:40]!r} is no version of Python; write one such as 3.12")
    if platform is not None and not _PLATFORM.fullmatch(platform):
        remedy = "write linux, windows, macos, or a triple such as x86_64-unknown-linux-gnu"
        raise UsageError(f"--platform {platform[:60]!r} is none that uv knows; {remedy}")
    if wheels is not None and not expanded(Path(wheels)).is_dir():
        raise UsageError(f"--wheelhouse {wheels}: is no folder of wheels")


def comfyui_version(options: Mapping[str, Any], imports: Sequence[Found]) -> str | None:
    """The version that the lock is for: as given, else of the checkout, else of whose classes were used.

    Raises:
        UsageError: the checkout does not say.
        TryLater: the server did not answer.
    """
    if options["comfyui_version"]:
        return str(options["comfyui_version"])
    if options["comfyui"]:
        return _checkout_version(expanded(Path(options["comfyui"])))
    if options["schema_from"]:
        return asyncio.run(_server_version(options["schema_from"]))
    imported = next((one.imported.comfyui for one in imports if one.imported.comfyui), None)
    return imported or (None if options["schema"] else SHIPPED_VERSION)


def _checkout_version(folder: Path) -> str:
    file = folder / "comfyui_version.py"
    try:
        found = _VERSION.search(file.read_text("utf-8"))
    except (OSError, UnicodeDecodeError) as exc:
        raise UsageError(f"{file}: cannot be read; name a checkout of ComfyUI with --comfyui") from exc
    if found is None:
        raise UsageError(f"{file}: does not say a version; pass --comfyui-version")
    return found[1]


async def _server_version(url: str) -> str:
    from comfyfarm.comfy.client import ComfyClient

    async with ComfyClient(url) as client:
        return (await client.system_stats()).version


def solved(
    options: Mapping[str, Any], needed: Sequence[Pack], index: PackIndex, notes: list[Finding]
) -> JsonValue:
    """The Python environment of ComfyUI and the needed packs, solved together; None without `--comfyui`.

    As long as the pack of some class is not known, every pack at hand may be it, and counts.

    Raises:
        UsageError: uv is not installed, or a folder is not what it should be.
        TryLater: an index did not answer.
    """
    if not options["comfyui"]:
        return None
    from comfyfarm.lock.environment import solve_environment
    from comfyfarm.lock.pack_requirements import comfyui_requirements, requirements_of
    from comfyfarm.lock.uv_compile import Target

    sources = [comfyui_requirements(expanded(Path(options["comfyui"])))]
    if options["custom_nodes"]:
        packs = [*needed]
        if any(row.pack is None for row in needed):
            packs.extend(_row(pack) for pack in index.installed)
        sources.extend(requirements_of(packs, index, expanded(Path(options["custom_nodes"]))))
    given = {key: options[key] for key in ("python_version", "platform") if options[key]}
    wheelhouse = expanded(Path(options["wheelhouse"])) if options["wheelhouse"] else None
    found = solve_environment(sources, Target(wheelhouse=wheelhouse, **given))
    notes.extend(found.findings)
    return found.python


def _row(pack: InstalledPack) -> Pack:
    return Pack(class_type="", pack=pack.folder, url=pack.url, commit=pack.commit, source="host")
