"""`python -m deployments.deploy`: all that a Prefect server must know of one host. Safe to repeat."""

import asyncio
import os
import shlex
import sys
from pathlib import Path

import click
import httpx
from prefect import get_client
from prefect.exceptions import PrefectHTTPStatusError
from prefect.settings import PREFECT_API_URL, PREFECT_CLIENT_MAX_RETRIES, temporary_settings
from pydantic import SecretStr

from comfyfarm.addresses import mask
from comfyfarm.control.state import control_status
from comfyfarm.errors import FarmError, TryLater, UsageError
from comfyfarm.farm.servers import host_slug, refuse_passwords
from comfyfarm.settings import FarmSettings, read_settings
from deployments.crash_recovery import set_up_automations
from deployments.description import read_description
from deployments.farm_blocks import set_up_blocks
from deployments.gpu_tags import look_at_servers, set_up_limits
from deployments.published import publish
from deployments.wanted import Wanted, absolute
from deployments.work_pool import set_up_pool
from flows.server_settings import is_ours, warn_of_settings

_RETRIES = 7  # of 429, 502, 503 and lost connections; about four minutes


@click.command()
@click.option("--server", "servers", multiple=True, required=True, metavar="URL", help="A ComfyUI server.")
@click.option("--ledger", metavar="URL", help="Default: COMFYFARM_LEDGER, else the control server's.")
@click.option(
    "--out",
    metavar="ADDRESS",
    help="Default: outputs in the state directory.",
)
@click.option("--host", metavar="NAME", help="Default: this machine's own name.")
@click.option("--pool", metavar="NAME", help="The host's work pool; default: the host's name.")
@click.option("--mirror", metavar="ADDRESS", help="Where model files come from.")
@click.option("--cache", "cache_dir", type=click.Path(path_type=Path), help="The host's model cache.")
@click.option("--models-dir", type=click.Path(path_type=Path), help="Where the servers look for models.")
@click.option("--inputs", "inputs_dir", type=click.Path(path_type=Path), help="Images, audio and video.")
@click.option("--concurrency", type=click.IntRange(1), metavar="N", help="Flow runs at a time.")
@click.option("--time-zone", default="UTC", show_default=True, help="Of the nightly schedule.")
def main(
    servers: tuple[str, ...],
    ledger: str | None,
    out: str | None,
    host: str | None,
    pool: str | None,
    mirror: str | None,
    cache_dir: Path | None,
    models_dir: Path | None,
    inputs_dir: Path | None,
    concurrency: int | None,
    time_zone: str,
) -> None:
    """Give a Prefect server work pool, limits, blocks, deployments and automations of this host."""
    settings = read_settings()
    name = host_slug(host)
    state = os.environ.get("COMFYFARM_STATE_DIR")
    try:
        api_url = find_api(settings)
        wanted = Wanted(
            host=name,
            pool=pool or name,
            servers=servers,
            ledger=find_ledger(settings, ledger),
            out=absolute(out or str(settings.state_dir / "outputs")),
            mirror=absolute(mirror) if mirror else None,
            cache_dir=cache_dir and cache_dir.absolute(),
            models_dir=models_dir and models_dir.absolute(),
            inputs_dir=inputs_dir and inputs_dir.absolute(),
            concurrency=concurrency,
            time_zone=time_zone,
            state_dir=settings.state_dir if state else None,
        )
        with temporary_settings({PREFECT_API_URL: api_url, PREFECT_CLIENT_MAX_RETRIES: _RETRIES}):
            for line in asyncio.run(deploy(wanted, look=not is_ours(api_url, settings))):
                click.echo(line)
    except FarmError as exc:
        click.echo(f"deploy: {exc}", err=True)
        sys.exit(exc.exit_code)


def find_api(settings: FarmSettings) -> str:
    """The Prefect API: the one that is set, else the control server's.

    Raises:
        UsageError: none is named, and no control server runs.
    """
    control = control_status(settings.state_dir)
    found = settings.prefect_api_url or (control.api_url if control is not None else None)
    if found is None:
        raise UsageError("no Prefect server is known: set PREFECT_API_URL, or run `comfyfarm control start`")
    return found


def find_ledger(settings: FarmSettings, ledger: str | None) -> SecretStr:
    """The ledger, in the order in which the command looks for it.

    Raises:
        UsageError: none is named, and no control server runs.
    """
    if ledger is not None:
        return SecretStr(ledger)
    control = control_status(settings.state_dir)
    found = settings.ledger or (SecretStr(control.ledger_url) if control is not None else None)
    if found is None:
        raise UsageError("no ledger is named: pass --ledger or set COMFYFARM_LEDGER")
    return found


async def deploy(wanted: Wanted, *, look: bool = True) -> list[str]:
    """Set everything up on the configured Prefect server; lines for people.

    Args:
        wanted: the host.
        look: at the server's settings; a control server has the right ones.

    Raises:
        ServerError: a ComfyUI server does not answer.
        TryLater: the Prefect server does not answer.
        UsageError: it refuses what is wanted, or a server's address has a password.
    """
    refuse_passwords(wanted.servers, where="here, and where the worker runs")
    wanted = wanted.model_copy(update={"records": await look_at_servers(wanted.servers, wanted.host)})
    try:
        return await _deploy(wanted, look=look)
    except PrefectHTTPStatusError as exc:
        if exc.response.status_code in {429, 502, 503}:
            raise TryLater(f"the Prefect server is too busy: {exc.response.status_code}") from exc
        raise UsageError(f"the Prefect server refuses: {exc.response.text[:500]}") from exc
    except (httpx.HTTPError, RuntimeError) as exc:
        # Prefect raises a plain RuntimeError when it cannot connect at all.
        raise TryLater(f"the Prefect server does not answer: {exc}") from exc


async def _deploy(wanted: Wanted, *, look: bool) -> list[str]:
    description = read_description(wanted.variables())
    async with get_client() as client:
        notes = await warn_of_settings(client) if look else ()
        pool = await set_up_pool(client, wanted.pool, concurrency=wanted.concurrency)
        limits = await set_up_limits(wanted)
        blocks = await set_up_blocks(wanted)
        made = await publish(client, description)
        automations = await set_up_automations(client)
        url = mask(str(client.api_url).rstrip("/"))
    return [
        *(f"warning: the Prefect server: {note}" for note in notes),
        f"Prefect server  {url}",
        f"work pool       {pool.name} ({pool.type}), queues high, normal, low",
        "limits          " + ", ".join(f"{tag} {limit}" for tag, limit in sorted(limits.items())),
        f"blocks          {', '.join(blocks)}",
        *(f"deployment      {name}" for name in made),
        *(f"automation      {name}" for name in automations),
        f"start a worker  export PREFECT_API_URL={url}",
        f"                prefect worker start --pool {shlex.quote(pool.name)}",
    ]


if __name__ == "__main__":
    main()
