"""One 4 GiB file and eight of 512 MiB from nginx on loopback: beside peers, ceiling and memory bound."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmarks import hydrate_ceiling, hydrate_peers
from benchmarks.figure import Figure
from benchmarks.hydrate_files import GIB, MIB, ROUNDS, SCALE, samples, shown, size_of
from benchmarks.hydrate_peers import INSTALL, Asked, found_program
from benchmarks.hydrate_run import Run, interleaved, median_cpu_s, median_s
from benchmarks.hydrate_server import WebServer, nginx

SHAPES = ((1, 4 * GIB // SCALE), (8, 512 * MIB // SCALE))
PEERS: Mapping[str, Callable[[Asked, str], Run]] = {
    "aria2c": hydrate_peers.aria2c,
    "s5cmd": hydrate_peers.s5cmd,
}
CEILING_SHARE = 0.85
MEMORY_MB = 150
LIBRARY = "obstore engine"
OWN = "own engine"


@dataclass(frozen=True)
class Measured:
    """All runs of one shape."""

    what: str
    """`1 x 4 GiB`."""
    files: int
    gib: float
    runs: Mapping[str, Sequence[Run]]
    server_cpu_s: float
    """For each GiB that it sent, over all runs."""

    def ratio(self, of: str, to: str, by: Callable[[Sequence[Run]], float]) -> float:
        """Of the medians of two sides."""
        return by(self.runs[of]) / by(self.runs[to])


def figures(program: str, folder: Path) -> Iterator[Figure]:
    """All figures of both shapes; `program` is nginx."""
    limits: hydrate_ceiling.Limits | None = None
    for count, size in SHAPES:
        with (
            samples(folder / "files", count=count, size=size) as files,
            nginx(program, folder / "nginx", folder) as server,
        ):
            asked = Asked(f"{server.url}/files", files, folder)
            if limits is None:
                limits = hydrate_ceiling.measure(f"{asked.url}/{files[0].path.name}", files[0], folder)
                yield from _limits(limits)
            measured = _measure(asked, server)
        yield from _against_peers(measured)
        yield _share_of_ceiling(measured, limits)
        yield _memory(measured)
        if LIBRARY in measured.runs:
            yield from _engines(measured)


def _measure(asked: Asked, server: WebServer) -> Measured:
    sides: dict[str, Callable[[], Run]] = {"ours": partial(hydrate_peers.ours, asked)}
    for name, run in PEERS.items():
        if (program := found_program(name)) is not None:
            sides[name] = partial(run, asked, program)
    if len(asked.files) == 1:
        sides[OWN] = partial(hydrate_peers.engine, asked, "own")
        sides[LIBRARY] = partial(hydrate_peers.engine, asked, "library")
    before = server.cpu_s()
    runs = interleaved(sides, rounds=ROUNDS)
    gib = size_of(asked.files)
    sent_gib = gib * len(sides) * (1 + ROUNDS)
    what = shown(len(asked.files), asked.files[0].size)
    return Measured(what, len(asked.files), gib, runs, (server.cpu_s() - before) / sent_gib)


def _limits(limits: hydrate_ceiling.Limits) -> Iterator[Figure]:
    told = {
        "loopback": (
            limits.loopback,
            "nginx with sendfile to a sink that receives only, best of 1 to 8 connections",
        ),
        "synced disk write": (limits.disk, "the best of buffered and O_DIRECT, preallocated, fsynced"),
        "SHA-256 of one core": (limits.sha256, "hashlib, blocks of 1 MiB, median of 3"),
    }
    for name, (value, against) in told.items():
        yield Figure(f"ceiling: {name}", round(value, 2), "GiB/s", "none", ok=True, against=against)


def _against_peers(measured: Measured) -> Iterator[Figure]:
    for name, runs in measured.runs.items():
        against = f"{measured.what}, median of {len(runs)}, interleaved; servers not counted"
        rate, cpu = measured.gib / median_s(runs), median_cpu_s(runs) / measured.gib
        yield Figure(f"rate of {name}, {measured.what}", round(rate, 3), "GiB/s", "none", True, against)
        yield Figure(f"CPU of {name}, {measured.what}", round(cpu, 3), "CPU s/GiB", "none", True, against)
    for peer in PEERS:
        yield from _against(measured, peer)


def _against(measured: Measured, peer: str) -> Iterator[Figure]:
    for word, by in (("time", median_s), ("CPU", median_cpu_s)):
        name, unit = f"hydrate, {word} beside {peer}, {measured.what}", f"times the {word}"
        if peer not in measured.runs:
            yield missing(name, unit, "<= 1.0", INSTALL[peer])
            continue
        ratio = measured.ratio("ours", peer, by)
        against = (
            f"{peer} unverified, fsynced within its time: {by(measured.runs['ours']):.2f} s of ours beside "
            f"{by(measured.runs[peer]):.2f} s, medians of {ROUNDS}, interleaved"
        )
        yield Figure(name, round(ratio, 3), unit, "<= 1.0", ratio <= 1.0, against)


def _share_of_ceiling(measured: Measured, limits: hydrate_ceiling.Limits) -> Figure:
    rate = measured.gib / median_s(measured.runs["ours"])
    least, name = limits.least(files=measured.files, server_cpu_s=measured.server_cpu_s)
    share = rate / least
    against = f"{rate:.2f} of {least:.2f} GiB/s, the least of all limits: {name}"
    what = f"hydrate, share of the ceiling, {measured.what}"
    return Figure(what, round(share, 3), "share", f">= {CEILING_SHARE}", share >= CEILING_SHARE, against)


def _memory(measured: Measured) -> Figure:
    peak = max(run.peak_mb for run in measured.runs["ours"])
    what = f"hydrate, peak memory, {measured.what}"
    against = f"the most of {ROUNDS} runs of the whole command"
    return Figure(what, round(peak, 1), "MB", f"< {MEMORY_MB}", peak < MEMORY_MB, against)


def _engines(measured: Measured) -> Iterator[Figure]:
    against = f"both in a process of their own, verified and synced, {measured.what}, medians of {ROUNDS}"
    for word, by in (("time", median_s), ("CPU", median_cpu_s)):
        ratio = measured.ratio(LIBRARY, OWN, by)
        name = f"obstore engine, {word} beside our own"
        yield Figure(name, round(ratio, 3), f"times the {word}", "> 1", ratio > 1, against)


def missing(name: str, unit: str, bar: str, install: str) -> Figure:
    """A figure that cannot be had for want of a program."""
    return Figure(name, 0.0, unit, bar, ok=False, against=f"not measured; install it: {install}")


def without_server(install: str) -> Iterator[Figure]:
    """All that have a bar, where nginx is missing."""
    for count, size in SHAPES:
        what = shown(count, size)
        for peer in PEERS:
            yield missing(f"hydrate, time beside {peer}, {what}", "times the time", "<= 1.0", install)
            yield missing(f"hydrate, CPU beside {peer}, {what}", "times the CPU", "<= 1.0", install)
        yield missing(f"hydrate, share of the ceiling, {what}", "share", f">= {CEILING_SHARE}", install)
        yield missing(f"hydrate, peak memory, {what}", "MB", f"< {MEMORY_MB}", install)
    for word in ("time", "CPU"):
        yield missing(f"{LIBRARY}, {word} beside our own", f"times the {word}", "> 1", install)
