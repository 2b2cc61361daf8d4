"""How a job wants to be run: priority, deadline, tenant, deadlines of its phases. Not what it is."""

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import Any

from pydantic import BaseModel, ConfigDict, PositiveFloat

DEADLINE_NAMES = (
    "submit_s",
    "queue_wait_s",
    "quiet_s",
    "no_progress_s",
    "execution_s",
    "wedged_s",
    "collect_s",
    "cancel_s",
)
"""The phases of an attempt that have a deadline, as `comfyfarm.run.deadlines` names them."""

_MOST_PRIORITY = 2**31 - 1  # what the ledger can hold
_LATEST_S = 1e11  # the year 5138; a time in milliseconds is later
_LONGEST_TENANT = 200


class JobSettings(BaseModel):
    """Settings of one job. They are no part of its id: the same work with others is the same job."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    priority: int = 0
    """Higher first, among the jobs of a batch."""
    deadline: float | None = None
    """Unix seconds after which the job is not begun any more."""
    tenant: str = ""
    """For whom it is."""
    deadlines: Mapping[str, PositiveFloat] = {}
    """Seconds for phases of an attempt, by `DEADLINE_NAMES`; the others are the batch's."""

    @property
    def settings(self) -> dict[str, Any]:
        """The settings alone, by name."""
        return {name: getattr(self, name) for name in JobSettings.model_fields}


def read_settings(raw: Mapping[str, Any]) -> JobSettings:
    """The settings among the keys of a job line that `settings_problems` has nothing to say about."""
    given = {name: raw[name] for name in JobSettings.model_fields if raw.get(name) is not None}
    if "deadline" in given:
        given["deadline"] = _unix_time(given["deadline"])
    return JobSettings.model_validate(given)


def settings_problems(raw: Mapping[str, Any]) -> Iterator[str]:
    """What is wrong with the settings of a job line. Null is as good as left out."""
    for name, problems in _CHECKS.items():
        if raw.get(name) is not None:
            yield from problems(raw[name])


def _priority(value: Any) -> Iterator[str]:
    if not isinstance(value, int) or isinstance(value, bool) or abs(value) > _MOST_PRIORITY:
        yield f"priority {value!r:.60} is no whole number; higher runs first, 0 is the default"


def _deadline(value: Any) -> Iterator[str]:
    try:
        _unix_time(value)
    except ValueError as exc:
        yield f"deadline {value!r:.60} {exc}; write 2026-08-01T18:00:00+02:00, or Unix seconds"


def _tenant(value: Any) -> Iterator[str]:
    if not isinstance(value, str) or not value.isprintable() or len(value) > _LONGEST_TENANT:
        yield f"tenant {value!r:.60} is no name; write text on one line, of at most {_LONGEST_TENANT} signs"


def _deadlines(value: Any) -> Iterator[str]:
    if not isinstance(value, dict):
        yield 'deadlines is no object; write {"execution_s": 1200}'
        return
    unknown = sorted(value.keys() - set(DEADLINE_NAMES))
    if unknown:
        known = ", ".join(DEADLINE_NAMES)
        yield f"deadlines: unknown key {', '.join(map(repr, unknown))}; the keys are {known}"
    for name in sorted(value.keys() & set(DEADLINE_NAMES)):
        if not _is_seconds(value[name]):
            yield f"deadlines: {name} {value[name]!r:.60} is no number of seconds above 0"


def _unix_time(value: Any) -> float:
    if _is_seconds(value):
        return float(value)
    if not isinstance(value, str):
        raise ValueError("is no Unix time in seconds")
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        raise ValueError("is no time") from None
    if moment.tzinfo is None:
        raise ValueError("has no time zone")
    try:
        seconds = moment.timestamp()
    except (OverflowError, ValueError):  # the first and the last day of what a date can be
        seconds = -1.0
    if not _is_seconds(seconds):
        raise ValueError("is before 1970, or too far away")
    return seconds


def _is_seconds(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < _LATEST_S


_CHECKS: Mapping[str, Callable[[Any], Iterator[str]]] = {
    "priority": _priority,
    "deadline": _deadline,
    "tenant": _tenant,
    "deadlines": _deadlines,
}
