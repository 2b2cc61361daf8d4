"""Progress bars on stderr for long work; silent when stderr is no terminal."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Advance = Callable[[int], None]


@contextmanager
def bytes_bar(what: str, total_bytes: int) -> Iterator[Advance]:
    """A bar over bytes; the value moves it on by so many."""
    with bytes_so_far_bar(what) as show:
        done = 0

        def advance(count: int) -> None:
            nonlocal done
            done += count
            show(done, total_bytes)

        yield advance


@contextmanager
def bytes_so_far_bar(what: str) -> Iterator[Callable[[int, int], None]]:
    """A bar over bytes, moved by how many are done and how many there are."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    console = Console(stderr=True)
    with Progress(*columns, console=console, disable=not sys.stderr.isatty(), transient=True) as progress:
        task = progress.add_task(what, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)


@contextmanager
def jobs_bar(what: str) -> Iterator[Callable[[dict[str, int]], None]]:
    """A bar over jobs, moved by counts of each status."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[note]}"),
    )
    console = Console(stderr=True)
    with Progress(*columns, console=console, disable=not sys.stderr.isatty(), transient=True) as progress:
        task = progress.add_task(what, total=None, note="")

        def show(counts: dict[str, int]) -> None:
            ended = sum(counts.get(one, 0) for one in ("succeeded", "dead", "cancelled"))
            note = f"{counts['dead']} dead" if counts.get("dead") else ""
            progress.update(task, completed=ended, total=sum(counts.values()) or None, note=note)

        yield show
