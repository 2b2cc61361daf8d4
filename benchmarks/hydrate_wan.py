"""The same command over a far line: 20 ms round trip, 5 MB/s a connection, start-up included."""

import statistics
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import psutil

from benchmarks import hydrate_peers
from benchmarks.delay_proxy import FarServer, far_away
from benchmarks.figure import Figure
from benchmarks.hydrate_files import MIB, ROUNDS, SCALE, samples, shown
from benchmarks.hydrate_link import missing
from benchmarks.hydrate_peers import Asked
from benchmarks.hydrate_run import Run, interleaved, median_s
from benchmarks.hydrate_server import nginx

ROUND_TRIP_S = 0.020
BYTES_PER_S = 5e6
SIZE = 256 * MIB // SCALE
FIXED = (4, 8, 16, 32)
LINEAR = (4, 8, 16)
LINEAR_SHARE = 0.9
AUTOMATIC_SHARE = 0.9
HASH_RATIO = 1.05
PROXY_SHARE = 0.4
HASH_CONNECTIONS = 16
_LINE = f"{ROUND_TRIP_S * 1000:g} ms round trip, {BYTES_PER_S / 1e6:g} MB/s a connection"


def figures(program: str, folder: Path) -> Iterator[Figure]:
    """All figures of the far line; `program` is nginx."""
    with (
        samples(folder / "files", count=1, size=SIZE) as files,
        nginx(program, folder / "nginx", folder) as server,
        far_away(server.port, round_trip_s=ROUND_TRIP_S, bytes_per_s=BYTES_PER_S) as far,
    ):
        asked = Asked(f"http://127.0.0.1:{far.port}/files", files, folder)
        yield from _by_connections(asked, far)
        yield _cost_of_hash(asked)


def _by_connections(asked: Asked, far: FarServer) -> Iterator[Figure]:
    sides = {str(count): partial(hydrate_peers.ours, asked, connections=count) for count in FIXED}
    runs = interleaved({**sides, "automatic": partial(hydrate_peers.ours, asked)}, rounds=ROUNDS)
    busy = _busy_share(asked, far)
    one = _rate([hydrate_peers.ours(asked, connections=1)])
    rates = {name: _rate(found) for name, found in runs.items()}
    for name, rate in {"1": one, **rates}.items():
        what = f"far line, rate with {name} connection{'' if name == '1' else 's'}"
        yield Figure(what, round(rate, 2), "MB/s", "none", ok=True, against=_against(name))
    for count in LINEAR:
        share = rates[str(count)] / (count * one)
        what = f"far line, {count} connections beside {count} x the rate of one"
        bar, ok = f">= {LINEAR_SHARE}", share >= LINEAR_SHARE
        yield Figure(what, round(share, 3), "share", bar, ok, _against(str(count)))
    yield _automatic(rates)
    against = f"its process, while {FIXED[-1]} connections were busy: no limit of what is measured"
    what = "far line, core used by the proxy"
    yield Figure(what, round(busy, 3), "cores", f"< {PROXY_SHARE}", busy < PROXY_SHARE, against)


def _automatic(rates: dict[str, float]) -> Figure:
    best = max(map(str, FIXED), key=lambda name: rates[name])
    share = rates["automatic"] / rates[best]
    ok, against = (
        share >= AUTOMATIC_SHARE,
        f"{best} connections, the best fixed number; {_against('automatic')}",
    )
    what = "far line, automatic beside the best fixed"
    return Figure(what, round(share, 3), "share", f">= {AUTOMATIC_SHARE}", ok, against)


def _cost_of_hash(asked: Asked) -> Figure:
    """Where the link is the limit, the hash is to hide behind it."""
    sides = {
        which: partial(hydrate_peers.engine, asked, which, connections=HASH_CONNECTIONS)
        for which in ("own", "own unhashed")
    }
    runs = interleaved(sides, rounds=ROUNDS)
    ratio = median_s(runs["own"]) / median_s(runs["own unhashed"])
    against = f"the same engine with SHA-256 left out; {_against(str(HASH_CONNECTIONS))}"
    what = "far line, verified beside unverified"
    return Figure(what, round(ratio, 3), "times the time", f"<= {HASH_RATIO}", ratio <= HASH_RATIO, against)


def _busy_share(asked: Asked, far: FarServer) -> float:
    process, before = psutil.Process(far.pid), time.monotonic()
    used = process.cpu_times()
    hydrate_peers.ours(asked, connections=FIXED[-1])
    now = process.cpu_times()
    return (now.user + now.system - used.user - used.system) / (time.monotonic() - before)


def _rate(runs: Sequence[Run]) -> float:
    """MB/s, start-up included."""
    return SIZE / 1e6 / statistics.median(run.wall_s for run in runs)


def _against(name: str) -> str:
    times = "one run" if name == "1" else f"median of {ROUNDS}, interleaved"
    return f"{_LINE}, {shown(1, SIZE)}, the whole command; {times}"


def without_server(install: str) -> Iterator[Figure]:
    """All that have a bar, where nginx is missing."""
    for count in LINEAR:
        what = f"far line, {count} connections beside {count} x the rate of one"
        yield missing(what, "share", f">= {LINEAR_SHARE}", install)
    yield missing("far line, automatic beside the best fixed", "share", f">= {AUTOMATIC_SHARE}", install)
    what = "far line, verified beside unverified"
    yield missing(what, "times the time", f"<= {HASH_RATIO}", install)
