"""Where model files come from and go to, as every command that brings them lets its user say."""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from comfyfarm.cache.keeper.keeper import Keeper
from comfyfarm.cache.supply import Supply
from comfyfarm.errors import UsageError
from comfyfarm.farm.supplies import keeper_from, supply_from
from comfyfarm.settings import FarmSettings, read_settings


@dataclass(frozen=True, kw_only=True)
class Road:
    """What the user named, completed by the settings."""

    settings: FarmSettings
    keeper: Keeper
    """Of the cache."""
    models_dir: Path | None
    """A models folder of ComfyUI, absolute; None when the lock's own view is used instead."""
    is_hard: bool
    """Whether links into it are hard ones."""
    mirror: str | None
    signed: str | None

    def supply(self, *, connections: int | None = None) -> Supply:
        """Where to look for files; `connections` to one source of a file, None adapts to the link."""
        return supply_from(self.settings, mirror=self.mirror, signed=self.signed, connections=connections)


def keeper_of(settings: FarmSettings, cache: Path | None) -> Keeper:
    """The keeper of `--cache`, or of the settings' cache.

    Raises:
        UsageError: it is a file.
    """
    keeper = keeper_from(settings, cache)
    if keeper.blobs.root.is_file():
        raise UsageError(f"the cache is a file: {keeper.blobs.root}")
    return keeper


_OPTIONS = (
    click.option("--mirror", metavar="DIR|s3://…|https://…", help="Default: the lock's own sources."),
    click.option(
        "--signed", metavar="FILE|URL", help="A list that `comfyfarm mirror sign` made: no credentials."
    ),
    click.option("--cache", type=click.Path(path_type=Path), help="Default: the user's cache directory."),
    click.option("--link-into", type=click.Path(path_type=Path), help="A models folder of ComfyUI."),
    click.option("--link", type=click.Choice(["symbolic", "hard"]), default="symbolic", show_default=True),
)


def takes_road(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command `--mirror`, `--signed`, `--cache`, `--link-into` and `--link`, as one `road`."""

    @functools.wraps(function)
    def wrapped(
        *args: Any,
        mirror: str | None,
        signed: str | None,
        cache: Path | None,
        link_into: Path | None,
        link: str,
        **more: Any,
    ) -> Any:
        settings = read_settings()
        road = Road(
            settings=settings,
            keeper=keeper_of(settings, cache),
            models_dir=link_into.absolute() if link_into is not None else None,
            is_hard=link == "hard",
            mirror=mirror,
            signed=signed,
        )
        return function(*args, road=road, **more)

    for option in reversed(_OPTIONS):
        option(wrapped)
    return wrapped
