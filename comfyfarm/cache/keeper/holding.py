"""A lease for code on an event loop: what may wait for others does so in a thread, and is never left open."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import TypeVar

from comfyfarm.cache.keeper.keeper import Held, Keeper
from comfyfarm.cache.pinned import Pinned

_T = TypeVar("_T")


@asynccontextmanager
async def held(keeper: Keeper, models: Sequence[Pinned], *, who: str = "") -> AsyncIterator[Held]:
    """`Keeper.hold`, without standing in the loop's way; whoever is cancelled leaves no lease behind.

    Raises:
        NoRoom: they do not fit, whatever may leave; nothing was changed.
        TransferError: some have to come, and the cache cannot be written.
    """
    loop, lease = asyncio.get_running_loop(), keeper.hold(models, who=who)
    entering = loop.run_in_executor(None, lease.__enter__)
    try:
        yield await _ended(entering)
    finally:
        if entering.exception() is None:
            await _ended(loop.run_in_executor(None, lease.__exit__, None, None, None))


async def _ended(work: asyncio.Future[_T]) -> _T:
    """What came of it. A thread cannot be stopped, so that also a cancel waits for its end."""
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        while not work.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait([work])
        raise
