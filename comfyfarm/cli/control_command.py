"""`comfyfarm control start|status|stop|run`: PostgreSQL and Prefect for those who have none."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from comfyfarm.cli.edge import ends_with_exit_code
from comfyfarm.control.launch import start_control, stop_control
from comfyfarm.control.server import run_control
from comfyfarm.control.state import ControlStatus, control_status
from comfyfarm.settings import read_settings

Function = TypeVar("Function", bound=Callable[..., Any])


def _dir_option(function: Function) -> Function:
    return click.option(
        "--dir",
        "directory",
        type=click.Path(path_type=Path),
        help="State directory (default: COMFYFARM_STATE_DIR, else the user's own).",
    )(function)


def _state_dir(directory: Path | None) -> Path:
    return directory.absolute() if directory else read_settings().state_dir


@click.group("control")
def command() -> None:
    """The embedded PostgreSQL and Prefect server, on loopback, with its data in the state directory."""


@command.command("start")
@_dir_option
@ends_with_exit_code
def start(directory: Path | None) -> None:
    """Start it in the background, if it does not run."""
    _show(start_control(_state_dir(directory)))


@command.command("status")
@_dir_option
@ends_with_exit_code
def status(directory: Path | None) -> None:
    """Say whether it runs, and where. Exit 3 when it does not."""
    found = control_status(_state_dir(directory))
    if found is None:
        click.echo("not running")
        sys.exit(3)
    click.echo(f"running, pid {found.pid}")
    _show(found)


def _show(status: ControlStatus) -> None:
    click.echo(f"Prefect API   {status.api_url or 'none'}\nDashboard     {status.ui_url or 'none'}")
    click.echo(f"Logs          {status.logs}")


@command.command("stop")
@_dir_option
@ends_with_exit_code
def stop(directory: Path | None) -> None:
    """Stop it; its data stays."""
    click.echo("stopped" if stop_control(_state_dir(directory)) else "not running")


@command.command("run")
@_dir_option
@ends_with_exit_code
def run(directory: Path | None) -> None:
    """Run it in the foreground, until SIGINT or SIGTERM."""
    run_control(_state_dir(directory))
