"""The queue and the history by themselves: order, bounds, and the accidents of the heap."""

from typing import Any

import pytest

from fake_server.comfy.prompts import HISTORY_LIMIT, Entry, Prompts


def _entry(number: float, prompt_id: str, graph: dict[str, Any] | None = None) -> Entry:
    return number, prompt_id, graph or {}, {}, []


async def test_the_smallest_number_comes_first_then_the_smallest_id() -> None:
    prompts = Prompts()
    for number, prompt_id in ((3, "a"), (-1, "z"), (3, "0"), (2, "b")):
        await prompts.put(_entry(number, prompt_id))

    taken = [(await prompts.take())[1][1] for _ in range(4)]

    assert taken == ["z", "b", "0", "a"]
    assert prompts.remaining() == 4


async def test_a_prompt_that_cannot_be_compared_is_queued_all_the_same() -> None:
    prompts = Prompts()
    await prompts.put(_entry(1, "same", {"1": {}}))

    with pytest.raises(TypeError):
        await prompts.put(_entry(1, "same", {"2": {}}))

    assert len(prompts.pending) == 2


async def test_history_keeps_one_more_than_its_limit_and_drops_the_oldest() -> None:
    prompts = Prompts()
    for number in range(HISTORY_LIMIT + 3):
        await prompts.put(_entry(number, f"p{number}"))
        ticket, _ = await prompts.take()
        prompts.done(ticket, {"outputs": {}, "meta": {}}, {})

    assert len(prompts.history) == HISTORY_LIMIT + 1
    assert next(iter(prompts.history)) == "p2"
    assert list(prompts.history_page(1, -1)) == [f"p{HISTORY_LIMIT + 2}"]
    assert list(prompts.history_page(1, 0)) == ["p2"]


async def test_every_change_is_told_once() -> None:
    prompts = Prompts()
    seen: list[int] = []
    prompts.on_change = lambda: seen.append(prompts.remaining())

    await prompts.put(_entry(1, "a"))
    await prompts.put(_entry(2, "b"))
    ticket, _ = await prompts.take()
    prompts.delete_pending("b")
    prompts.done(ticket, {"outputs": {}, "meta": {}}, {})

    assert seen == [1, 2, 2, 1, 0]
    assert not prompts.delete_pending("b")
