"""Locks as commands read them, and the JSON that is printed also when the lock or a workflow is at fault."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import click

from comfyfarm.addresses import read_bytes
from comfyfarm.errors import FarmError, InputError, NamesMissing
from comfyfarm.farm.sources import LOCK_LIMIT_BYTES
from comfyfarm.lock.lockfile import Lock, read_lock
from comfyfarm.lock.resolve import Unresolved
from comfyfarm.workflow.findings import Finding, Refused, error

DEFAULT_LOCK = "comfyfarm.lock"


def open_lock(name: str) -> Lock:
    """The lock of that name, which is the first argument of its command.

    Raises:
        InputError: there is none, or it is something else.
        TryLater: the address did not answer.
    """
    data = read_bytes(name, limit_bytes=LOCK_LIMIT_BYTES)
    return read_lock(data, name=name, remedy="the first argument is the lock, which `comfyfarm lock` makes")


@contextmanager
def json_when_refused(as_json: bool, found: Sequence[Finding] = (), **known: Any) -> Iterator[None]:
    """Under `--json`, print `known` and the findings before the error goes on to end the command.

    `found`: what was found before, which may grow meanwhile.
    """
    try:
        yield
    except InputError as exc:
        if as_json:
            rows = [finding.model_dump(mode="json") for finding in (*found, *as_findings(exc))]
            click.echo(json.dumps({**known, "findings": rows}, ensure_ascii=False))
        raise


def as_findings(exc: FarmError) -> Sequence[Finding]:
    """What an error says, as findings."""
    if isinstance(exc, Refused):
        return exc.findings
    if isinstance(exc, NamesMissing):
        remedy = "list it in a catalogue, or correct the workflow"
        wrong = exc.findings if isinstance(exc, Unresolved) else ()
        return [*(error("missing_model", name, remedy) for name in exc.names), *wrong]
    return [error("unreadable", str(exc), "see the message")]
