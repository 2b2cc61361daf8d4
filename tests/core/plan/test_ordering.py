"""Jobs with the same models run together."""

import itertools
import uuid

from hypothesis import given
from hypothesis import strategies as st

from comfyfarm.ids import JobId
from comfyfarm.plan.job import JobSpec
from comfyfarm.plan.ordering import order_by_models


def job(position: int) -> JobSpec:
    name = JobId(str(uuid.UUID(int=position)))
    return JobSpec(id=name, batch="b", position=position, graph_digest="ab" * 32, content_digest="ab" * 32)


@given(st.lists(st.sampled_from(["sdxl", "flux", None]), max_size=12))
def test_each_set_of_models_is_one_stretch_and_nothing_else_moves(models: list[str | None]) -> None:
    jobs = [job(position) for position in range(len(models))]
    loads = {each.id: model for each, model in zip(jobs, models, strict=True) if model is not None}

    ordered = order_by_models(jobs, loads)

    runs = [loads.get(each.id) for each in ordered]
    changes = sum(before != after for before, after in itertools.pairwise(runs))
    assert sorted(ordered, key=lambda each: each.position) == jobs
    assert changes == max(0, len(set(models)) - 1)
    assert list(dict.fromkeys(runs)) == list(dict.fromkeys(models))
    for model in set(models):
        positions = [each.position for each in ordered if loads.get(each.id) == model]
        assert positions == sorted(positions)
