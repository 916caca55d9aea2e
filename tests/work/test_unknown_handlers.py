"""A process that releases tasks with unknown handlers lets processes that know them claim first."""

from __future__ import annotations

import asyncio
import time

from peerd import Client
from peerd.domain.known_handlers import UnsupportedTask
from peerd.runtime.observability.events import EventBus
from peerd.store.connection.database import DatabaseThreads
from peerd.store.connection.outages import OutageTracker
from peerd.store.schema.migrate import migrate
from peerd.work.attempts.attempt_outcome import MAX_YIELD_DELAY, UnknownHandlerResolver
from tests.support.servers import DatabaseFactory


def test_a_process_that_has_released_an_unknown_task_delays_its_claims(
    database_factory: DatabaseFactory,
) -> None:
    with Client(database_factory("sqlite")) as client:
        migrate(client.database)
        task = client.tasks.get(client.enqueue("work", name="goes").id)
        outages = OutageTracker(EventBus(), time.monotonic)
        not_served = UnknownHandlerResolver(DatabaseThreads(client.database), outages, unknown_after=60.0)
        assert not_served.yield_delay() == 0.0
        asyncio.run(not_served.resolve_unknown_handler(task, UnsupportedTask("no handler named 'goes'")))
        waits = [not_served.yield_delay() for _ in range(20)]
        assert 0.0 <= min(waits) < max(waits) <= MAX_YIELD_DELAY
