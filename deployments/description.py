"""Reads `prefect.yaml`, the one description of the deployments."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict

_OPEN = re.compile(r"{{\s*\$(\w+)\s*}}")


class _Described(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class WorkPoolUse(_Described):
    """Which pool and queue a deployment's runs go to, and with which settings."""

    name: str
    work_queue_name: str
    job_variables: Mapping[str, Any] = {}


class ScheduleUse(_Described):
    """A schedule as it is first made."""

    cron: str
    timezone: str
    active: bool
    slug: str


class Described(_Described):
    """One deployment."""

    name: str
    description: str
    entrypoint: str
    version: str
    tags: tuple[str, ...] = ()
    parameters: Mapping[str, Any] = {}
    enforce_parameter_schema: bool = True
    work_pool: WorkPoolUse
    schedules: tuple[ScheduleUse, ...] = ()


class Description(BaseModel):
    """The whole file; what only Prefect's own command reads is passed over."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    pull: tuple[Mapping[str, Any], ...]
    deployments: tuple[Described, ...]


def read_description(variables: Mapping[str, str], *, file: Path | None = None) -> Description:
    """The description with `{{ $NAME }}` filled in.

    Raises:
        KeyError: a variable is absent.
    """
    path = file or Path(__file__).with_name("prefect.yaml")
    return Description.model_validate(_filled(yaml.safe_load(path.read_text(encoding="utf-8")), variables))


def _filled(value: Any, variables: Mapping[str, str]) -> Any:
    if isinstance(value, str):
        return _OPEN.sub(lambda found: variables[found[1]], value)
    if isinstance(value, list):
        return [_filled(item, variables) for item in value]
    if isinstance(value, dict):
        return {key: _filled(item, variables) for key, item in value.items()}
    return value
