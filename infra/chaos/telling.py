"""The figures that say how the run was: what was broken, and how the processes took it."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence

from pydantic import JsonValue

from infra.chaos.fakes import Fake
from infra.chaos.fault_log import Struck
from infra.chaos.figures import Figure, none_of, told
from infra.chaos.workers import Worker

_FENCED = re.compile(r"is lost to another owner|has another owner now")
_TRACEBACK = re.compile(r"Traceback \(most recent call last\)")
_USAGE = 2


def how_it_was(
    seed: int,
    seconds: float,
    faults: Sequence[Struck],
    workers: Sequence[Worker],
    fakes: Sequence[Fake],
    late: Sequence[str],
    *,
    logs: Mapping[int, str],
) -> tuple[Figure, ...]:
    """From what was seen from outside, and the workers' own words."""
    exits: dict[str, JsonValue] = {f"worker {worker.number}": _counted(worker.exits) for worker in workers}
    usage = [f"worker {worker.number}" for worker in workers if worker.exits[_USAGE]]
    return (
        told("seed", seed),
        told("seconds", round(seconds, 1)),
        told("faults", len(faults)),
        told("faults, by kind", dict(Counter(fault.name for fault in faults).most_common())),
        told("server processes that ended", sum(sum(fake.ends.values()) for fake in fakes)),
        told("calls of workers that ended", exits),
        told("results thrown away by a fenced owner", _matches(_FENCED, logs)),
        told("tracebacks in the workers' logs", _matches(_TRACEBACK, logs)),
        none_of("workers that said it was the user's fault", usage),
        none_of("workers that did not end with the batch", late),
    )


def _matches(pattern: re.Pattern[str], logs: Mapping[int, str]) -> int:
    return sum(len(pattern.findall(text)) for text in logs.values())


def _counted(exits: Counter[int]) -> JsonValue:
    return {str(code): count for code, count in sorted(exits.items())}
