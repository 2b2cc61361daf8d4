"""The command: parse, call, print, exit. A subcommand's module is loaded when it is used."""

import gc
import importlib
import os
import signal
import sys
from typing import Any

import click

from comfyfarm import __version__
from comfyfarm.workflow.gc_pause import gc_paused

_COMMANDS = {
    "preflight": "Read workflows: what they need, and what is wrong with them.",
    "convert": "Print the API graph of a workflow of any format.",
    "lock": "Pin every model that workflows name, by content.",
    "plan": "Say what a lock needs of this machine, and whether it fits.",
    "mirror": "A mirror of model files: add, list, verify, clean up, sign.",
    "cache": "This host's model files: list, pin, evict, verify, count, share them.",
    "prewarm": "Bring a lock's model files to this host before they are needed.",
    "hydrate": "Bring the locked model files to this host, verified.",
    "render": "Render a workflow or a job file on ComfyUI servers, every job exactly once.",
    "batch": "Make a job file from ranges, lists and files of values.",
    "results": "Show what became of a batch.",
    "dead-letters": "Jobs that failed for good: look at them, requeue or drop them.",
    "health": "Ask ComfyUI servers how they are.",
    "control": "The embedded PostgreSQL and Prefect server.",
    "app-dir": "Print the directory from which the flows run.",
}

_SETTLE_S = 0.1
_BRISK = frozenset({"preflight", "convert", "hydrate", "prewarm"})
"""Commands of which a second of start-up would be felt."""


class _LazyGroup(click.Group):
    """Loads a subcommand's module only when it is called: `--help` answers in a blink."""

    def list_commands(self, _ctx: click.Context) -> list[str]:
        """All names, in the order of the stages."""
        return list(_COMMANDS)

    def get_command(self, _ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The subcommand, loaded now."""
        if cmd_name not in _COMMANDS:
            return None
        if cmd_name in _BRISK:
            # To find plugins pydantic reads what all packages say of themselves: a tenth of a preflight.
            os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
        # What is loaded stays: looking for garbage in it takes a tenth of the time to load it.
        with gc_paused():
            module = importlib.import_module(f"comfyfarm.cli.{cmd_name.replace('-', '_')}_command")
        gc.freeze()
        command: click.Command = module.command
        return command

    def format_commands(self, _ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The table of commands, without loading any."""
        with formatter.section("Commands"):
            formatter.write_dl(list(_COMMANDS.items()))


@click.group(
    cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.version_option(__version__, prog_name="comfyfarm")
def main(**_options: Any) -> None:
    """A render farm for ComfyUI: every image exactly once, no idle minute.

    Exit status: 0 done · 1 the workflow or its data is at fault · 2 usage or set-up · 3 try later.
    """


def run() -> None:
    """The installed command."""
    if sys.argv[1:2] == ["render"]:
        # Loading takes a second, and until something is begun there is nothing to be stopped in order.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        main()
    finally:
        _let_transfers_end()


def _let_transfers_end() -> None:
    """Give the object store's threads the moment that they need.

    They let go of what they gave us a little later; an interpreter that ends just then is aborted.
    Source: issue 40 of pyo3-async-runtimes.
    """
    if "obstore" in sys.modules:
        from comfyfarm.clock import pause

        pause(_SETTLE_S)
