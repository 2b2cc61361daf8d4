"""Servers that are alive, as their owners say: limits are counts of these rows."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, Delete, delete, select, update

from comfyfarm.ledger.batches import upsert
from comfyfarm.ledger.claims import LEASE_S
from comfyfarm.ledger.database import Database
from comfyfarm.ledger.records import ServerRecord
from comfyfarm.ledger.schema import db_now, servers


class Servers(Database):
    """The part of the ledger that knows the ComfyUI servers."""

    async def register_servers(
        self, records: Sequence[ServerRecord], owner: str, lease_s: float = LEASE_S
    ) -> None:
        """Say that these servers live, for `lease_s` seconds. Several owners may name the same one."""
        rows = [{**record.model_dump(), "owner": owner} for record in sorted(records, key=lambda r: r.url)]

        def work(connection: Connection) -> None:
            # Long over, by the longest lease that is of use: nobody renews these.
            connection.execute(delete(servers).where(servers.c.lease_until < db_now() - 600.0))
            for row in rows:
                connection.execute(_registering(connection, row, lease_s))

        await self._write(work)

    async def renew_servers(self, owner: str, lease_s: float = LEASE_S) -> int:
        """Lengthen the leases of the owner's servers; how many it has (0: register them again)."""
        statement = update(servers).where(servers.c.owner == owner).values(lease_until=db_now() + lease_s)

        def work(connection: Connection) -> int:
            return (connection.execute(statement)).rowcount

        return await self._write(work)

    async def remove_server(self, url: str, owner: str) -> None:
        """Take the owner's word for one server back: a quarantined one leaves the limits at once."""
        await self._remove(delete(servers).where(servers.c.url == url, servers.c.owner == owner))

    async def remove_servers(self, owner: str) -> None:
        """Take the owner's word for its servers back; those that another owner names stay."""
        await self._remove(delete(servers).where(servers.c.owner == owner))

    async def living_servers(self) -> tuple[ServerRecord, ...]:
        """Each living server once, sorted by address. Loopback addresses of two hosts are two servers."""
        query = (
            select(servers.c.url, servers.c.host, servers.c.device, servers.c.model)
            .where(servers.c.lease_until >= db_now())
            .order_by(servers.c.url, servers.c.lease_until)
        )

        def work(connection: Connection) -> tuple[ServerRecord, ...]:
            # The one with the longest lease last: it is the newest word.
            rows = connection.execute(query)
            newest = {(row.host, row.url): ServerRecord(**row._mapping) for row in rows}
            return tuple(newest.values())

        return await self._read(work)

    async def _remove(self, statement: Delete) -> None:
        await self._write(lambda connection: connection.execute(statement).rowcount)


def _registering(connection: Connection, row: dict[str, Any], lease_s: float) -> Any:
    statement = upsert(connection, servers).values(**row, lease_until=db_now() + lease_s)
    new = {name: statement.excluded[name] for name in ("host", "device", "model", "lease_until")}
    return statement.on_conflict_do_update(index_elements=["url", "owner"], set_=new)
