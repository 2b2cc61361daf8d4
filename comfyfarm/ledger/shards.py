"""Shards: the rows by which stretches of batches wait for a host."""

import uuid
from typing import Any

from sqlalchemy import Connection, insert, select, update

from comfyfarm.ledger.database import Database
from comfyfarm.ledger.records import ShardRecord
from comfyfarm.ledger.schema import db_now, shards


class Shards(Database):
    """The part of the ledger that knows who waits for which host."""

    async def announce_shard(self, batch: str, host: str, owner: str, *, shard_id: str | None = None) -> str:
        """Write the waiting row of a shard, before it asks for GPU slots. Returns the shard's id."""
        shard_id = shard_id or str(uuid.uuid4())
        row = {"batch": batch, "host": host, "owner": owner, "waiting_since": db_now()}
        # A flow run that is started again keeps its id: the row is then its new life's.
        again = update(shards).where(shards.c.id == shard_id).values(**row, started=None, ended=None)
        if not await self._change_shard(again):
            await self._change_shard(insert(shards).values(id=shard_id, **row))
        return shard_id

    async def start_shard(self, shard_id: str) -> None:
        """The shard has its first lane."""
        await self._change_shard(
            update(shards).where(shards.c.id == shard_id, shards.c.started.is_(None)).values(started=db_now())
        )

    async def end_shard(self, shard_id: str) -> None:
        """The shard is over, or gave up waiting."""
        await self._change_shard(
            update(shards).where(shards.c.id == shard_id, shards.c.ended.is_(None)).values(ended=db_now())
        )

    async def open_shards(self, host: str) -> tuple[ShardRecord, ...]:
        """Shards of a host that have not ended, the longest waiting first. Their owners may be dead."""
        query = (
            select(shards)
            .where(shards.c.host == host, shards.c.ended.is_(None))
            .order_by(shards.c.waiting_since, shards.c.id)
        )

        def work(connection: Connection) -> tuple[ShardRecord, ...]:
            return tuple(ShardRecord(**row._mapping) for row in connection.execute(query))

        return await self._read(work)

    async def _change_shard(self, statement: Any) -> int:
        """How many rows changed."""

        def work(connection: Connection) -> int:
            return connection.execute(statement).rowcount

        return await self._write(work)
