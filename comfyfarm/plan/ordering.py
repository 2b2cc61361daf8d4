"""The order in which jobs run: those with the same models together, so that a GPU loads each once."""

from collections.abc import Hashable, Mapping, Sequence

from comfyfarm.ids import JobId
from comfyfarm.plan.job import JobSpec


def order_by_models(jobs: Sequence[JobSpec], models: Mapping[JobId, Hashable]) -> tuple[JobSpec, ...]:
    """The jobs, grouped by what they load; groups and jobs keep the order in which they came.

    `models`: what each job loads, equal for equal models, such as a frozenset of digests. A job
    that is not there needs none.
    """
    groups: dict[Hashable, list[JobSpec]] = {}
    for job in jobs:
        groups.setdefault(models.get(job.id), []).append(job)
    return tuple(job for group in groups.values() for job in group)
