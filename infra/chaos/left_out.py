"""Servers that a worker did without, since they were in trouble when it began: read from its log. Pure."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from infra.chaos.causes import SLACK_S
from infra.chaos.fault_log import Struck
from infra.chaos.figures import Figure, none_of
from infra.chaos.kinds import LEFT_OUT

_LEFT_OUT = re.compile(r"^([\d.]+) .*server left out: (http://[\w.:]+)")
_ENDED = re.compile(r"^([\d.]+) -- ended with")
_LOOKED_S = 15.0
"""A server that does not answer at all is asked for so long before it is left out."""


def left_out_servers(logs: Mapping[int, str]) -> tuple[Struck, ...]:
    """One for each server and call of a worker, for as long as the call lasted."""
    return tuple(one for worker, text in logs.items() for one in _of_worker(worker, text))


def has_cause(one: Struck, faults: Iterable[Struck]) -> bool:
    """Whether something struck that server while it was asked."""
    begun = one.begun - _LOOKED_S
    return any(fault.strikes(one.server or "", begun, one.begun, slack_s=SLACK_S) for fault in faults)


def away_for_nothing(left_out: Sequence[Struck], faults: Sequence[Struck]) -> Figure:
    """Servers that were left out although nothing was wrong with them."""
    wrong = [one for one in left_out if not has_cause(one, faults)]
    return none_of(
        "servers left out without a fault",
        (f"worker {one.worker} at {one.begun:.1f}: {one.server}" for one in wrong),
    )


def _of_worker(worker: int, text: str) -> Iterator[Struck]:
    since: dict[str, float] = {}
    for line in text.splitlines():
        absent, ended = _LEFT_OUT.match(line), _ENDED.match(line)
        if absent is not None:
            since.setdefault(absent[2], float(absent[1]))
        elif ended is not None:
            yield from _until(worker, since, float(ended[1]))
            since = {}
    yield from _until(worker, since, None)


def _until(worker: int, since: Mapping[str, float], over: float | None) -> Iterator[Struck]:
    for server, begun in since.items():
        yield Struck(kind=LEFT_OUT, server=server, worker=worker, begun=begun, over=over)
