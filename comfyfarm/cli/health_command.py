"""`comfyfarm health`: one line for each server; exit 0 when at least one is healthy, 1 when none is."""

import asyncio
import sys

import click

from comfyfarm.cli.edge import ends_with_exit_code
from comfyfarm.farm.servers import Health, health, host_of


@click.command("health")
@click.option("--server", "servers", multiple=True, required=True, metavar="URL", help="A ComfyUI server.")
@ends_with_exit_code
def command(servers: tuple[str, ...]) -> None:
    """Ask ComfyUI servers how they are. Exit 1 when none is healthy."""
    for url in servers:
        host_of(url)  # whether it is an address at all
    found = asyncio.run(_ask(servers))
    for one in found:
        click.echo(_line(one))
    sys.exit(0 if any(one.is_healthy for one in found) else 1)


async def _ask(servers: tuple[str, ...]) -> list[Health]:
    return await asyncio.gather(*(health(url) for url in servers))


def _line(one: Health) -> str:
    if one.stats is None or not one.is_healthy:
        return f"{one.url}  unhealthy  {one.fault}"
    device = one.stats.device
    memory = f", {device.vram_free >> 20} of {device.vram_total >> 20} MiB free" if device.vram_total else ""
    queue = f"{one.running} running, {one.pending} pending"
    return f"{one.url}  healthy  ComfyUI {one.stats.version} on {device.name}{memory}; {queue}"
