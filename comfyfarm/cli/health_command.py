"""`comfyfarm health`: one line for each server; exit 0 when at least one is healthy, else 1."""

import asyncio
import sys

import click

from comfyfarm.farm.servers import Health, health


@click.command("health")
@click.option("--server", "servers", multiple=True, required=True, metavar="URL", help="A ComfyUI server.")
def command(servers: tuple[str, ...]) -> None:
    """Ask ComfyUI servers how they are."""
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
