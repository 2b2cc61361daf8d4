"""`comfyfarm cache serve`: this host's model files for other hosts, until SIGINT or SIGTERM."""

from pathlib import Path

import click

from comfyfarm.cache.keeper.stats import prometheus, read_stats
from comfyfarm.cache.peers.server import held_signals, open_server, serving
from comfyfarm.cli.edge import ends_with_exit_code, say
from comfyfarm.farm.supplies import keeper_from
from comfyfarm.settings import read_settings


@click.command("serve")
@click.option("--cache", type=click.Path(path_type=Path), help="Default: the user's cache directory.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Where to listen; 0.0.0.0: everywhere.")
@click.option("--port", type=click.IntRange(0, 65535), default=8199, show_default=True, help="0: a free one.")
@ends_with_exit_code
def command(cache: Path | None, host: str, port: int) -> None:
    """Give this cache's model files to other hosts, which name this one in COMFYFARM_PEERS.

    Who wants them must show the token of COMFYFARM_PEER_TOKEN. It travels in the clear, so use a network of
    your own. Only whole, verified files are given, and nothing can be changed.
    """
    settings = read_settings()
    token = settings.peer_token.get_secret_value() if settings.peer_token else None
    keeper = keeper_from(settings, cache)
    server = open_server(
        keeper.blobs, host=host, port=port, token=token, more_metrics=lambda: prometheus(read_stats(keeper))
    )
    with held_signals() as wait, serving(server) as url:
        say(f"{keeper.blobs.root} is served at {url}")
        wait()
