"""What a lock says besides models: the version of ComfyUI, and the Python environment."""

import asyncio
import functools
import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from pydantic import JsonValue

from comfyfarm.addresses import expanded
from comfyfarm.cli.catalogues import Found
from comfyfarm.errors import UsageError
from comfyfarm.lock.regular_file import read_regular
from comfyfarm.workflow.findings import Finding
from comfyfarm.workflow.packs.index import InstalledPack, PackIndex
from comfyfarm.workflow.packs.pack import Pack

if TYPE_CHECKING:  # read when there is anything to solve
    from comfyfarm.lock.uv_compile import Target

Function = TypeVar("Function", bound=Callable[..., Any])

SHIPPED_VERSION = "0.27"
"""Of the node classes that are shipped: a lock made with them is made for it."""
_MOST_NAMED = 3
_FOR_SOLVING = ("--wheelhouse", "--python-version", "--platform")
_PYTHON = re.compile(r"3\.\d{1,2}(?:\.\d{1,3})?")
_PLATFORM = re.compile(
    r"windows|linux|macos"
    r"|[a-z0-9_]+-(?:unknown-linux(?:-(?:gnu|musl)[a-z]*)?|pc-windows-msvc|apple-[a-z]+(?:-[a-z]+)?"
    r"|manylinux(?:\d+|_\d+_\d+)|linux-android[a-z]*)"
    r"|wasm32-[a-z0-9_-]+|arm64-apple-[a-z]+(?:-[a-z]+)?"
)
"""Names of platforms as uv has them; one that has this form and is none uv refuses itself."""
_VERSION_LIMIT_BYTES = 1024 * 1024
_VERSION = re.compile(r"""^__version__\s*=\s*["']([^"']{1,60})["']""", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class EnvironmentOptions:
    """What the options say of ComfyUI and the Python environment; empty values are refused."""

    comfyui: str | None = None
    """A checkout of ComfyUI."""
    comfyui_version: str | None = None
    wheelhouse: str | None = None
    """A folder of wheels to solve from."""
    python_version: str | None = None
    platform: str | None = None
    """As uv names it."""

    def check(self) -> None:
        """Refuse values that are none, and options that would not count, before anything is asked.

        Raises:
            UsageError: one of them is so.
        """
        given = {f"--{key.replace('_', '-')}": value for key, value in asdict(self).items()}
        for name, value in given.items():
            if value is not None and not value.strip():
                raise UsageError(f"{name} is empty; leave it out, or give a value")
        idle = [name for name in _FOR_SOLVING if given[name] is not None and self.comfyui is None]
        if idle:
            it = "it" if len(idle) == 1 else "them"
            said = f"{', '.join(idle)}: only the Python environment needs {it}"
            raise UsageError(f"{said}, which is solved with --comfyui DIR; give that, too, or leave them out")
        self._check_values()

    def _check_values(self) -> None:
        version, platform, wheels = self.python_version, self.platform, self.wheelhouse
        if version is not None and not _PYTHON.fullmatch(version):
            raise UsageError(
                f"--python-version {version[:40]!r} is no version of Python; write one such as 3.12"
            )
        if platform is not None and not _PLATFORM.fullmatch(platform):
            remedy = "write linux, windows, macos, or a triple such as x86_64-unknown-linux-gnu"
            raise UsageError(f"--platform {platform[:60]!r} is none that uv knows; {remedy}")
        if wheels is not None and not expanded(Path(wheels)).is_dir():
            raise UsageError(f"--wheelhouse {wheels}: is no folder of wheels")


def environment_options(function: Function) -> Function:
    """One parameter, `environment`: an `EnvironmentOptions`."""
    options = (
        click.option("--comfyui", metavar="DIR", help="A checkout of ComfyUI: its version and requirements."),
        click.option("--comfyui-version", metavar="VERSION", help="Version of ComfyUI that the lock is for."),
        click.option("--wheelhouse", metavar="DIR", help="Wheels to solve the Python environment from."),
        click.option("--python-version", metavar="X.Y", help="Python of the servers (default: this one)."),
        click.option("--platform", metavar="TRIPLE", help="Platform of the servers, as uv names it."),
    )

    @functools.wraps(function)
    def gathered(*args: Any, **kwargs: Any) -> Any:
        given = {field.name: kwargs.pop(field.name) for field in fields(EnvironmentOptions)}
        return function(*args, environment=EnvironmentOptions(**given), **kwargs)

    command: Callable[..., Any] = gathered
    for option in reversed(options):
        command = option(command)
    return command  # type: ignore[return-value]


def comfyui_version(
    given: EnvironmentOptions, imports: Sequence[Found], *, schema: str | None, schema_from: str | None
) -> str | None:
    """The version that the lock is for: as given, else of the checkout, else of whose classes were used.

    Raises:
        UsageError: the checkout does not say.
        TryLater: the server did not answer.
    """
    if given.comfyui_version:
        return given.comfyui_version
    if given.comfyui:
        return _checkout_version(expanded(Path(given.comfyui)))
    if schema_from:
        return asyncio.run(_server_version(schema_from))
    imported = next((one.imported.comfyui for one in imports if one.imported.comfyui), None)
    return imported or (None if schema else SHIPPED_VERSION)


def _checkout_version(folder: Path) -> str:
    file = folder / "comfyui_version.py"
    try:
        found = _VERSION.search(read_regular(file, limit_bytes=_VERSION_LIMIT_BYTES).decode())
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
    given: EnvironmentOptions,
    needed: Sequence[Pack],
    index: PackIndex,
    notes: list[Finding],
    *,
    custom_nodes: str | None,
) -> JsonValue:
    """The Python environment of ComfyUI and the needed packs, solved together; None without `--comfyui`.

    As long as the pack of some class is not known, every pack at hand may be it, and counts.

    Raises:
        UsageError: uv is not installed, or a folder is not what it should be.
        TryLater: an index did not answer.
    """
    if not given.comfyui:
        return None
    from comfyfarm.lock.environment import solve_environment
    from comfyfarm.lock.pack_requirements import comfyui_requirements, requirements_of

    sources = [comfyui_requirements(expanded(Path(given.comfyui)))]
    counted: dict[str, str] = {}
    if custom_nodes:
        others = _others(needed, index)
        why = _why_counted(needed)
        named = {row.pack for row in needed}
        counted = {row.pack: why for row in others if row.pack is not None and row.pack not in named}
        sources.extend(requirements_of([*needed, *others], index, expanded(Path(custom_nodes))))
    found = solve_environment(sources, _target(given), counted=counted)
    notes.extend(found.findings)
    return found.python


def _others(needed: Sequence[Pack], index: PackIndex) -> list[Pack]:
    """The packs at hand that no class is known to be of, as long as the pack of some class is not known."""
    if all(row.pack is not None for row in needed):
        return []
    known = {name for row in needed for name in (row.url, row.pack) if name is not None}
    rows = [_row(pack) for pack in index.installed]
    return [row for row in rows if (row.url or row.pack) not in known]


def _why_counted(needed: Sequence[Pack]) -> str:
    unknown = list(dict.fromkeys(repr(row.class_type[:80]) for row in needed if row.pack is None))
    more = ", …" if len(unknown) > _MOST_NAMED else ""
    return f"counted because the pack of {', '.join(unknown[:_MOST_NAMED])}{more} is not known"


def _target(given: EnvironmentOptions) -> "Target":
    from comfyfarm.lock.uv_compile import Target

    named = {"python_version": given.python_version, "platform": given.platform}
    wheelhouse = expanded(Path(given.wheelhouse)) if given.wheelhouse else None
    words: dict[str, Any] = {key: value for key, value in named.items() if value}
    return Target(wheelhouse=wheelhouse, **words)


def _row(pack: InstalledPack) -> Pack:
    return Pack(class_type="", pack=pack.folder, url=pack.url, commit=pack.commit, source="host")
