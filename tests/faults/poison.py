"""Rows that no loop can digest, written by hand beside good ones: the loops must go on, and say what is wrong."""

from __future__ import annotations

import random
import threading
from contextlib import closing
from typing import Final

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from peerd.domain.bulk import ENDED, BulkRetry, BulkState
from peerd.domain.node_request import NodeRequestStatus
from peerd.store.bulk import insert_bulk
from peerd.store.connection.database import Database
from peerd.store.schema.tables import bulk_actions, node_requests, nodes, schedule_runs, stored_schedules
from peerd.store.schema.types import seconds_from_now
from tests.faults.fault_injector import FaultInjector, FaultRates, recorded_fault

BY: Final = "poison"
BROKEN: Final = '{"a":'
QUEUE: Final = "nowhere"
TAKEN_WITHIN: Final = 3600.0
"""Seconds that an agent has: its node may be frozen and cut off one after the other, but it must answer in the end."""


class PoisonInjector(FaultInjector):
    """Writes such rows, straight to the database.

    Args:
        url: of the database.
    """

    def __init__(self, url: str, rng: random.Random, rates: FaultRates, stopping: threading.Event) -> None:
        super().__init__("poison", rng, rates.freeze_every, (0.3, 0.9), stopping)
        self._url = url
        self._count = 0

    def inject(self) -> None:
        self._count += 1
        writes = [self._poison_bulk_actions, self._poison_node_requests, self._poison_schedules]
        write = writes[self._count % len(writes)]
        with recorded_fault(f"poison: {write.__name__.removeprefix('_poison_')}", "database"):
            engine = sa.create_engine(self._url, poolclass=sa.NullPool)
            try:
                with engine.begin() as connection:
                    write(connection)
            except (sa.exc.OperationalError, sa.exc.InternalError):
                pass  # the server is away, or the disk full
            finally:
                engine.dispose()

    def find_undigested(self) -> list[str]:
        """What is wrong with the poisoned rows, and with the good ones behind them, when all is healed."""
        with closing(Database(self._url)) as database:
            return database.read(_find_undigested)

    def _poison_bulk_actions(self, connection: Connection) -> None:
        bad = {"action": "retry", "arguments": BROKEN, "filter": BROKEN, "highest_id": 1, "created_by": BY}
        connection.execute(sa.insert(bulk_actions).values(state=str(BulkState.RUNNING), **bad))
        fields = {"queue": QUEUE}
        insert_bulk(connection, BulkRetry(), fields, highest_id=1, state=str(BulkState.RUNNING), created_by="good")

    def _poison_node_requests(self, connection: Connection) -> None:
        row = [nodes.c.id, nodes.c.incarnation, sa.literal("reload"), sa.literal(BROKEN), sa.literal(BY)]
        present = sa.select(*row, seconds_from_now(TAKEN_WITHIN)).where(
            nodes.c.active, nodes.c.incarnation.is_not(None)
        )
        names = ["node_id", "incarnation", "command", "arguments", "requested_by", "expires_at"]
        connection.execute(sa.insert(node_requests).from_select(names, present))

    def _poison_schedules(self, connection: Connection) -> None:
        name = f"{BY} {self._count}"
        connection.execute(sa.insert(stored_schedules).values(name=name, definition=BROKEN))
        connection.execute(sa.insert(schedule_runs).values(schedule=name, args=BROKEN))


def _find_undigested(connection: Connection) -> list[str]:
    bulk, requests = bulk_actions.c, node_requests.c
    waiting = sa.select(bulk.id, bulk.created_by, bulk.state).where(bulk.state.not_in([str(state) for state in ENDED]))
    digested = sa.select(bulk.id, bulk.created_by, bulk.state).where(
        bulk.created_by == BY, bulk.state != str(BulkState.FAILED)
    )
    open_requests = sa.select(requests.id, requests.status, requests.error).where(
        requests.requested_by == BY,
        requests.status.in_([str(NodeRequestStatus.WAITING), str(NodeRequestStatus.RUNNING)]),
        requests.incarnation.in_(sa.select(nodes.c.incarnation).where(nodes.c.active)),
    )
    found = {"not carried out": waiting, "carried out": digested, "not answered": open_requests}
    return [
        f"poisoned rows, {what}: {rows}" for what, select in found.items() if (rows := connection.execute(select).all())
    ]
