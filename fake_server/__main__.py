"""The command: `python -m fake_server comfy --port 8188`."""

import argparse
import asyncio
import contextlib
import os
import signal
import sys
from pathlib import Path

from aiohttp import web

from fake_server.comfy import BadScript, FakeComfy
from fake_server.comfy.cache import CachePolicy
from fake_server.comfy.script import read
from fake_server.listening import Listening

_USAGE_ERROR = 2


def main(argv: list[str] | None = None) -> int:
    """Run the server that the arguments describe until it is told to stop."""
    options = _parser().parse_args(argv)
    try:
        fake = _fake(options)
    except (BadScript, OSError) as exc:
        sys.stderr.write(f"fake_server: {exc}\n")
        return _USAGE_ERROR
    fake.on_fatal(lambda: _die(fake))
    try:
        asyncio.run(_serve(fake.app, options.host, options.port))
    except OSError as exc:
        sys.stderr.write(f"fake_server: {exc}\n")
        return 1
    finally:
        fake.clean_up()
    return 0


def _die(fake: FakeComfy) -> None:
    fake.clean_up()
    os._exit(1)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m fake_server", description=__doc__)
    comfy = parser.add_subparsers(dest="server", required=True).add_parser(
        "comfy", help="a fake ComfyUI 0.27"
    )
    comfy.add_argument("--port", type=int, default=8188, help="0 takes a free one (default: 8188)")
    comfy.add_argument("--host", default="127.0.0.1")
    comfy.add_argument("--prompt-seconds", type=float, default=0.0, help="how long a prompt takes")
    comfy.add_argument("--busy", type=int, default=0, help="other people's prompts ahead in the queue")
    comfy.add_argument("--script", default="", help="'ok*3,oom,ok', or a JSON file of lists by prompt id")
    models = comfy.add_mutually_exclusive_group()
    models.add_argument("--models-dir", type=Path, help="what the loaders offer")
    models.add_argument("--extra-model-paths-config", type=Path, help="an extra_model_paths.yaml")
    comfy.add_argument("--input-dir", type=Path, help="default: a temporary folder")
    comfy.add_argument("--output-dir", type=Path, help="default: a temporary folder")
    comfy.add_argument("--temp-dir", type=Path, help="default: a temporary folder")
    comfy.add_argument(
        "--cache",
        type=CachePolicy,
        choices=list(CachePolicy),
        default=CachePolicy.CLASSIC,
        help="what a prompt finds of the results of those before it (default: classic)",
    )
    comfy.add_argument("--journal", type=Path, help="a file that keeps the log over restarts")
    comfy.add_argument("--device", default="cpu", help="the GPU's name in /system_stats (default: cpu)")
    return parser


def _fake(options: argparse.Namespace) -> FakeComfy:
    return FakeComfy(
        models_dir=options.models_dir,
        extra_model_paths=options.extra_model_paths_config,
        input_dir=options.input_dir,
        output_dir=options.output_dir,
        temp_dir=options.temp_dir,
        prompt_seconds=options.prompt_seconds,
        busy=options.busy,
        script=read(options.script),
        journal=options.journal,
        cache=options.cache,
        device=options.device,
        argv=["main.py", *sys.argv[2:]],
    )


async def _serve(app: web.Application, host: str, port: int) -> None:
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for name in (signal.SIGINT, signal.SIGTERM):
        with contextlib.suppress(NotImplementedError):
            loop.add_signal_handler(name, stopped.set)
    listening = Listening(app)
    url = await listening.open(host, port)
    sys.stdout.write(f"{url}\n")
    sys.stdout.flush()
    await stopped.wait()
    await listening.close()


if __name__ == "__main__":
    sys.exit(main())
