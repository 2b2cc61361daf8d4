"""The memory of all transfers: bounded, aligned, handed to the most urgent, and never a deadlock."""

import ctypes
import mmap
import random
import threading
from collections.abc import Callable

import pytest

from comfyfarm.cache.transfer import buffers
from comfyfarm.cache.transfer.buffers import BufferPool
from comfyfarm.clock import SystemClock

MIB = 1 << 20


class _GaveUp(Exception):
    pass


def _go_on() -> None:
    return


def _give_up() -> None:
    raise _GaveUp


def _in_thread(work: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


def _until(condition: Callable[[], bool]) -> None:
    """Wait for another thread; the test's own timeout ends it."""
    ticks = threading.Event()
    while not condition():
        ticks.wait(0.001)


def test_a_buffer_begins_at_a_page_and_holds_one_chunk() -> None:
    pool = BufferPool()
    shelf = pool.open_shelf()
    buffer = pool.take(shelf, 0, _go_on)

    address = ctypes.addressof(ctypes.c_char.from_buffer(buffer))

    assert address % mmap.PAGESIZE == 0
    assert len(buffer) == MIB


def test_memory_is_made_when_it_is_needed_and_given_back_with_the_last_file() -> None:
    pool = BufferPool(4)
    assert pool._made == 0
    first, second = pool.open_shelf(), pool.open_shelf()
    one = pool.take(first, 0, _go_on)
    pool.park(first, 0, pool.take(first, MIB, _go_on))
    assert pool._made == 2

    pool.close_shelf(first)
    pool.close_shelf(second)
    assert pool._made == 1
    pool.give(one)
    assert pool._made == 0


def test_a_buffer_that_comes_back_is_used_again() -> None:
    pool = BufferPool(4)
    shelf = pool.open_shelf()
    pool.give(pool.take(shelf, 0, _go_on))
    pool.take(shelf, 0, _go_on)

    assert pool._made == 1


def test_the_parked_buffer_whose_turn_is_farthest_is_taken_away() -> None:
    pool = BufferPool(5, for_readers=1)
    near, far = pool.open_shelf(), pool.open_shelf()
    # Offset 8 of `far` is nearer to its turn than offset 5 of `near` is.
    pool.unpark(far, 6 * MIB)
    for shelf, at in ((near, 1), (near, 5), (far, 8), (near, 2)):
        pool.park(shelf, at * MIB, pool.take(shelf, at * MIB, _go_on))

    pool.take(near, 3 * MIB, _give_up)

    assert pool.unpark(near, 5 * MIB) is None
    assert pool.unpark(near, 1 * MIB) is not None
    assert pool.unpark(far, 8 * MIB) is not None
    assert pool._made == 4


def test_while_a_hash_gives_buffers_back_none_is_taken_away(monkeypatch: pytest.MonkeyPatch) -> None:
    # Patched because a machine may be too busy for a quarter of a second.
    monkeypatch.setattr(buffers, "_MOST_PATIENCE_S", 1e6)
    pool = BufferPool(4, for_readers=1)
    shelf = pool.open_shelf()
    for at in (1, 2, 3):
        pool.park(shelf, at * MIB, pool.take(shelf, at * MIB, _go_on))
    first = pool.unpark(shelf, MIB)
    assert first is not None
    pool.give_hashed(shelf, first, turn=2 * MIB, was_parked=True)
    shelf.freed_s += 1e6
    filling = pool.take(shelf, 4 * MIB, _go_on)
    taken: list[mmap.mmap] = []
    waiting = _in_thread(lambda: taken.append(pool.take(shelf, 5 * MIB, _go_on)))
    _until(lambda: bool(pool._waiters))
    pool.give(filling)
    waiting.join()

    assert taken == [filling]
    assert pool.unpark(shelf, 2 * MIB) is not None
    assert pool.unpark(shelf, 3 * MIB) is not None


def test_nobody_waits_for_a_hash_that_waits_for_a_slow_connection() -> None:
    pool = BufferPool(4, for_readers=1)
    shelf = pool.open_shelf()
    for at in (1, 2, 3):
        pool.park(shelf, at * MIB, pool.take(shelf, at * MIB, _go_on))
    ticks = threading.Event()
    for _ in range(30):
        # A millisecond between one chunk and the next, and hardly any time for each.
        ticks.wait(0.001)
        shelf.begin(0)
        shelf.end(0, was_parked=True)
    shelf.freed_s += 1e6

    assert shelf.busy < 0.3
    assert pool.take(shelf, 9 * MIB, _give_up) is not None
    assert pool.unpark(shelf, 3 * MIB) is None


def test_the_chunk_that_the_hash_waits_for_never_waits_itself() -> None:
    pool = BufferPool(3, for_readers=1)
    shelf = pool.open_shelf()
    for at in (1, 2):
        pool.park(shelf, at * MIB, pool.take(shelf, at * MIB, _go_on))
    shelf.freed_s = SystemClock().monotonic() + 1e6

    assert pool.take(shelf, 0, _give_up) is not None


def test_who_is_most_urgent_gets_the_next_buffer() -> None:
    pool = BufferPool(3, for_readers=1)
    shelf = pool.open_shelf()
    filling = [pool.take(shelf, at, _go_on) for at in (0, MIB)]
    order: list[int] = []

    def need(at: int) -> None:
        pool.take(shelf, at, _go_on)
        order.append(at)

    threads = []
    for n, at in enumerate((9 * MIB, 2 * MIB, 5 * MIB), start=1):
        threads.append(_in_thread(lambda at=at: need(at)))  # type: ignore[misc]
        _until(lambda n=n: len(pool._waiters) == n)  # type: ignore[misc]
    for n, buffer in enumerate(filling, start=1):
        pool.give(buffer)
        _until(lambda n=n: len(order) == n)  # type: ignore[misc]

    assert order == [2 * MIB, 5 * MIB]
    pool.give(mmap.mmap(-1, MIB))
    for thread in threads:
        thread.join()


def test_what_was_taken_away_can_be_read_back_while_connections_fill_all_the_rest() -> None:
    pool = BufferPool(4, for_readers=1)
    shelf = pool.open_shelf()
    for at in range(3):
        pool.take(shelf, at, _go_on)

    with pytest.raises(_GaveUp):
        pool.take(shelf, 9, _give_up)
    assert pool.take_for_reading(_give_up) is not None
    with pytest.raises(_GaveUp):
        pool.take_for_reading(_give_up)


def test_who_gives_up_waiting_leaves_no_trace() -> None:
    pool = BufferPool(2, for_readers=1)
    shelf = pool.open_shelf()
    filling = pool.take(shelf, 0, _go_on)
    with pytest.raises(_GaveUp):
        pool.take(shelf, MIB, _give_up)

    pool.give(filling)

    assert pool.take(shelf, MIB, _give_up) is filling


def test_one_offset_is_parked_once() -> None:
    pool = BufferPool(4, for_readers=1)
    shelf = pool.open_shelf()
    for _ in range(3):
        pool.park(shelf, 0, pool.take(shelf, 0, _go_on))

    assert pool.unpark(shelf, 0) is not None
    assert pool.unpark(shelf, 0) is None


@pytest.mark.parametrize("limit", [2, 3, 8])
def test_many_connections_of_many_files_never_lock_each_other_out(limit: int) -> None:
    pool = BufferPool(limit, for_readers=1)
    shelves = [pool.open_shelf() for _ in range(3)]
    most = []

    def fill(n: int) -> None:
        shelf, chance = shelves[n % 3], random.Random(n)
        for step in range(60):
            at = (n // 3 + 11 * step) * MIB
            buffer = pool.take(shelf, at, _go_on)
            most.append(pool._made)
            if chance.random() < 0.2:
                pool.give(buffer)
            else:
                pool.park(shelf, at, buffer)

    def follow(n: int) -> None:
        shelf = shelves[n]
        for at in range(0, 200 * MIB, MIB):
            parked = pool.unpark(shelf, at)
            buffer = parked or pool.take_for_reading(_go_on)
            pool.give_hashed(shelf, buffer, turn=at + MIB, was_parked=parked is not None)

    threads = [_in_thread(lambda n=n: fill(n)) for n in range(32)]  # type: ignore[misc]
    threads += [_in_thread(lambda n=n: follow(n)) for n in range(3)]  # type: ignore[misc]
    for thread in threads:
        thread.join(30)

    assert not any(thread.is_alive() for thread in threads)
    assert max(most) <= limit
    for shelf in shelves:
        pool.close_shelf(shelf)
    assert pool._made == 0
