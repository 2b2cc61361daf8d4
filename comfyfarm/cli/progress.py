"""Progress bars on stderr for long work; silent when stderr is no terminal."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress, ProgressColumn, Task

Advance = Callable[[int], None]


@contextmanager
def bytes_bar(what: str, total_bytes: int) -> Iterator[Advance]:
    """A bar over bytes; the value moves it on by so many."""
    with _progress() as progress:
        task = progress.add_task(what, total=total_bytes)
        yield lambda count: progress.advance(task, count)


@contextmanager
def bytes_so_far_bar(what: str) -> Iterator[Callable[[int, int], None]]:
    """A bar over bytes, moved by how many are done and how many there are."""
    with _progress() as progress:
        task = progress.add_task(what, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)


class RenderBars:
    """The bars of a render: one over the bytes of model files while they come, one over its jobs."""

    def __init__(self, progress: "Progress", batch: str) -> None:
        self._progress = progress
        self._models = progress.add_task("models", total=None, visible=False)
        self._jobs = progress.add_task(batch, total=None, note="", unit="jobs")

    def show_jobs(self, counts: dict[str, int]) -> None:
        """Move the bar over jobs, by their counts of each status."""
        ended = sum(counts.get(one, 0) for one in ("succeeded", "dead", "cancelled"))
        note = f"{counts['dead']} dead" if counts.get("dead") else ""
        self._progress.update(self._jobs, completed=ended, total=sum(counts.values()) or None, note=note)

    def show_bytes(self, done: int, total: int) -> None:
        """Move the bar over bytes; it is gone once all have come."""
        self._progress.update(self._models, completed=done, total=total, visible=done < total)

    @contextmanager
    def bytes_bar(self, total_bytes: int) -> Iterator[Advance]:
        """The bar over bytes, moved on by so many."""
        done = 0

        def advance(count: int) -> None:
            nonlocal done
            done += count
            self.show_bytes(done, total_bytes)

        yield advance
        self.show_bytes(total_bytes, total_bytes)


@contextmanager
def render_bars(batch: str) -> Iterator[RenderBars]:
    """The bars of a render, while it runs."""
    with _progress() as progress:
        yield RenderBars(progress, batch)


@contextmanager
def _progress() -> Iterator["Progress"]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), _amount(), _time())
    console = Console(stderr=True)
    with Progress(*columns, console=console, disable=not sys.stderr.isatty(), transient=True) as progress:
        yield progress


def _amount() -> "ProgressColumn":
    """How much of it: jobs, or bytes and how fast they come."""
    from rich.progress import DownloadColumn, MofNCompleteColumn, ProgressColumn, TransferSpeedColumn
    from rich.text import Text

    count, size, speed = MofNCompleteColumn(), DownloadColumn(), TransferSpeedColumn()

    class Amount(ProgressColumn):
        def render(self, task: "Task") -> Text:
            if task.fields.get("unit") == "jobs":
                return Text(" ").join([count.render(task), Text(task.fields["note"])])
            return Text(" ").join([size.render(task), speed.render(task)])

    return Amount()


def _time() -> "ProgressColumn":
    """How long it took so far, of jobs; how long it takes yet, of bytes."""
    from rich.progress import ProgressColumn, TimeElapsedColumn, TimeRemainingColumn
    from rich.text import Text

    elapsed, remaining = TimeElapsedColumn(), TimeRemainingColumn()

    class Time(ProgressColumn):
        def render(self, task: "Task") -> Text:
            return (elapsed if task.fields.get("unit") == "jobs" else remaining).render(task)

    return Time()
