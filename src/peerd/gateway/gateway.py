"""The gateway: what serves the queue clients of one process, in any protocol.

`Gateway` makes its parts, each after those that it calls: `OperationQueue` executes operations in batches,
`ReadyJobs` offers jobs to the clients that wait, `Tubes`, `Puts` and `ReservationEnds` are what commands do, and
`Reserving` has the clients with their reserves. Replies come after the commit. Everything but the batches runs on the
event loop.
"""

from __future__ import annotations

import asyncio
import hmac
import secrets
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from peerd.config.settings import GatewaySettings, QueueSettings
from peerd.domain.errors import DatabaseUnavailable
from peerd.domain.ring import Ring
from peerd.gateway import reservation_ends
from peerd.gateway.group_commit import OperationQueue
from peerd.gateway.operations import Holder
from peerd.gateway.puts import Puts
from peerd.gateway.ready_jobs import ReadyJobs
from peerd.gateway.reply_memory import ReplyMemory
from peerd.gateway.reservation_ends import Reconciliation, ReservationEnds
from peerd.gateway.reserving import Reserving
from peerd.gateway.tubes import Tubes
from peerd.runtime.observability.events import EventBus
from peerd.runtime.observability.log_messages import queue_operation_failed
from peerd.runtime.process.uncaught_exceptions import describe_exception
from peerd.store.connection.database import Database
from peerd.store.connection.outages import OutageTracker

POLL_EVERY: Final = 10.0


class Gateway:
    """The jobs and clients of one process, its limits, and the counters that statistics show.

    Args:
        database: not closed with it.
        holder: the process, by its row in ``processes``.
        settings: limits and access.
        queues: the sections ``[queues.NAME]``.
        ring: rings at all nodes of the cluster.
        events: what happens.
        outages: of the database.
        is_alone: there is no agent and no other process, so it stages the due jobs of the whole table itself.
    """

    def __init__(
        self,
        database: Database,
        holder: Holder,
        settings: GatewaySettings,
        queues: Mapping[str, QueueSettings],
        ring: Callable[[Ring], None],
        events: EventBus,
        outages: OutageTracker,
        *,
        is_alone: bool = False,
    ) -> None:
        self.settings = settings
        self.poll_every = POLL_EVERY
        """Seconds between two polls for waiting clients; may be changed."""
        self._events = events
        self._outages = outages
        self.operations = OperationQueue(database, holder, self._on_failures)
        self.ready = ReadyJobs(self.operations, ring, follow_table=is_alone)
        self.tubes = Tubes(self.operations, self.ready, is_alone=is_alone)
        self.puts = Puts(self.operations, self.ready, self.tubes, queues)
        self.ends = ReservationEnds(self.operations, self.ready, self.tubes, self.puts.capacities, queues)
        self.reserving = Reserving(self.operations, self.ready, self.ends)
        self._reconciliation = Reconciliation(
            self.operations, holder.process_id, self.reserving.clients, self.ends, self._on_reconciled
        )
        self.refuses_puts = False
        """No job may be put (SIGUSR1)."""
        self.reply_memory = ReplyMemory(settings.max_job_size)
        self.buffered = 0
        """Bytes that connections hold."""
        self.held_up: dict[Callable[[], None], None] = {}
        """What reads on in connections that are not read because all together have too much buffered."""
        self.connections = 0
        self.producers = 0
        self.workers = 0
        self.total_connections = 0
        self.commands: Counter[str | None] = Counter()
        """Executed commands, by the name that statistics have for them."""
        self.id = secrets.token_hex(8)
        self.started_at = time.monotonic()

    def start(self) -> None:
        """Begin to execute operations."""
        self.operations.start(self.reserving)
        self._reconciliation.compare_in(reservation_ends.RECONCILE_EVERY)

    def close(self) -> None:
        """End; operations that were not executed are dropped."""
        self.ready.close()
        self._reconciliation.close()
        self.operations.close()

    def is_token(self, given: bytes) -> bool:
        """Whether a client's token is right; always, where none is needed."""
        token = self.settings.token
        return token is None or hmac.compare_digest(given, token.encode())

    async def poll_for_waiters(self) -> None:
        """Let waiting clients attempt now and then, though rings were lost; it does not return."""
        while True:
            await asyncio.sleep(self.poll_every)
            if self.ready.waiters:
                self.ready.on_ring(())

    def _on_failures(self, errors: Sequence[Exception]) -> None:
        self._reconciliation.compare_in(reservation_ends.RECONCILE_AFTER_FAILURE)
        for error in errors:
            if isinstance(error, DatabaseUnavailable):
                self._outages.lost(error)
            else:
                self._events.emit(queue_operation_failed(describe_exception(error)))

    def _on_reconciled(self) -> None:
        self._outages.found()
        self.ready.on_ring(())
        self.tubes.end_unneeded()
