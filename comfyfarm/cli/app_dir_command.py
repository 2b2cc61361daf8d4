"""`comfyfarm app-dir`: one recipe for checkout and wheel: `cd "$(comfyfarm app-dir)" && prefect …`."""

import click

from comfyfarm.app import app_dir


@click.command("app-dir")
def command() -> None:
    """Print the directory from which the flows run."""
    click.echo(app_dir())
