"""Progress bars on stderr for long work; silent when stderr is no terminal."""

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress, ProgressColumn, Task, TaskID

    from comfyfarm.cache.pinned import Placed

Advance = Callable[[int], None]
OnModelBytes = Callable[["Placed", int], None]
_LONGEST_NAME = 40


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


@contextmanager
def hydration_bars(models: "Iterable[Placed]") -> Iterator[OnModelBytes]:
    """Bars over model files that are to come: one for each that is under way, one for all.

    The value moves a file on by so many bytes; back, when a source is given up.
    """
    wanted = {model.sha256: model for model in models}
    if not sys.stderr.isatty():
        yield lambda _model, _count: None  # nor is the library loaded that draws them
        return
    with _progress() as progress:
        whole = progress.add_task("models", total=sum(model.size for model in wanted.values()))
        done = dict.fromkeys(wanted, 0)
        under_way: dict[str, TaskID] = {}

        def on_bytes(model: "Placed", count: int) -> None:
            done[model.sha256] = done.get(model.sha256, 0) + count
            progress.advance(whole, count)
            task = under_way.get(model.sha256)
            if done[model.sha256] >= model.size:
                if task is not None:
                    progress.remove_task(under_way.pop(model.sha256))
            elif task is None:
                under_way[model.sha256] = progress.add_task(
                    _short(model.path), total=model.size, completed=done[model.sha256]
                )
            else:
                progress.advance(task, count)

        yield on_bytes


class RenderBars:
    """The bars of a render: one over the bytes of model files while they come, one over its jobs."""

    def __init__(self, progress: "Progress", batch: str) -> None:
        self._progress = progress
        self._models = progress.add_task("models", total=None, visible=False)
        self._jobs = progress.add_task(batch, total=None, note="", unit="jobs")
        self._files: dict[str, TaskID] = {}

    def show_jobs(self, counts: dict[str, int]) -> None:
        """Move the bar over jobs, by their counts of each status."""
        ended = sum(counts.get(one, 0) for one in ("succeeded", "dead", "cancelled"))
        note = f"{counts['dead']} dead" if counts.get("dead") else ""
        self._progress.update(self._jobs, completed=ended, total=sum(counts.values()) or None, note=note)

    def show_bytes(self, done: int, total: int, files: "Iterable[tuple[str, int, int]]" = ()) -> None:
        """Move the bar over bytes; it is gone once all have come.

        `files`: those under way, each with its own bar: name, bytes that are done, size.
        """
        self._progress.update(self._models, completed=done, total=total, visible=done < total)
        under_way = {name: (came, size) for name, came, size in files}
        for name in self._files.keys() - under_way.keys():
            self._progress.remove_task(self._files.pop(name))
        for name, (came, size) in under_way.items():
            if name not in self._files:
                self._files[name] = self._progress.add_task(_short(name), total=size)
            self._progress.update(self._files[name], completed=came)

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


def _short(path: str) -> str:
    """The end of a path: there the names of model files differ."""
    return path if len(path) <= _LONGEST_NAME else f"…{path[1 - _LONGEST_NAME :]}"


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
