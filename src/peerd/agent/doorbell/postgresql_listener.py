"""PostgreSQL's LISTEN: a thread with one connection of its own, opened again when it is lost.

Any role that may connect to the database can notify. So an unsigned notification is a hint, and the number of hints
heeded in a second is limited; those beyond it become one ring for any queue.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import Any, Final

from peerd.agent.doorbell.health import RejectedRings
from peerd.domain.ring import Ring, TasksAvailable
from peerd.domain.token_bucket import TokenBucket
from peerd.doorbell.datagram import CHANNEL, NotificationVerifier, RejectionReason, RingRejected
from peerd.store.connection.database import Database, translated_errors
from peerd.store.connection.outages import Backoff

CHECK_STOP_EVERY: Final = 0.5
"""Seconds after which the thread notices that it must end."""
END_WITHIN: Final = 2.0
UNSIGNED_RATE: Final = (400, 200.0)
"""Unsigned notifications heeded at once, and in a second, in a cluster without a secret, where all are unsigned."""
UNSIGNED_RATE_WITH_SECRET: Final = (5, 1.0)
"""The same where there is a secret: they are written by hand in SQL, or by an application without the secret."""


@dataclass(eq=False)
class PostgresqlListener:
    """Listens, from `run` to its cancellation."""

    database: Database
    verifier: NotificationVerifier
    on_ring: Callable[[Ring], None]
    """Called on the event loop with each ring."""
    on_change: Callable[[str | None], None]
    """Called on the event loop: with a problem when the connection is lost, with None when it is open."""
    rejected: RejectedRings
    """Counts the other notifications."""

    def __post_init__(self) -> None:
        self._unsigned = TokenBucket(*(UNSIGNED_RATE_WITH_SECRET if self.verifier.has_secret else UNSIGNED_RATE))
        self._has_dropped_hints = False

    async def run(self) -> None:
        """Listen until cancelled."""
        self._loop = asyncio.get_running_loop()
        stopping = threading.Event()
        thread = threading.Thread(target=self._run_thread, args=(stopping,), name="peerd-listening", daemon=True)
        thread.start()
        try:
            await asyncio.Event().wait()
        finally:
            stopping.set()
            await asyncio.to_thread(thread.join, END_WITHIN)

    def _run_thread(self, stopping: threading.Event) -> None:
        pauses = Backoff()
        while not stopping.is_set():
            try:
                with closing(self._connect()) as connection:
                    self._call_on_loop(self.on_change, None)
                    self._call_on_loop(self.on_ring, TasksAvailable())  # rings may have been missed meanwhile
                    pauses.reset()
                    self._listen(connection, stopping)
            except Exception as error:  # noqa: BLE001 - whatever it is, the connection is opened again
                problem = f"PostgreSQL's LISTEN: {str(error).strip() or type(error).__name__}"
                self._call_on_loop(self.on_change, problem)
                stopping.wait(pauses.next())

    def _connect(self) -> Any:
        with translated_errors():
            pooled = self.database.engine.raw_connection()
        pooled.detach()  # it does not go back to the pool
        connection: Any = pooled.dbapi_connection
        connection.rollback()
        connection.autocommit = True
        connection.execute(f"LISTEN {CHANNEL}")
        return connection

    def _listen(self, connection: Any, stopping: threading.Event) -> None:
        while not stopping.is_set():
            for notification in connection.notifies(timeout=CHECK_STOP_EVERY):
                self._receive(notification.payload, notification.pid)
                if stopping.is_set():
                    return
            if self._has_dropped_hints:
                self._has_dropped_hints = False
                self._call_on_loop(self.on_ring, TasksAvailable())

    def _receive(self, payload: str, pid: int) -> None:
        if not self.verifier.is_signed(payload) and not self._unsigned.try_take(time.monotonic()):
            self._has_dropped_hints = True
            return
        try:
            self._call_on_loop(self.on_ring, self.verifier.open(payload))
        except RingRejected as error:
            if error.rejection_reason is not RejectionReason.OURS:
                self.rejected.add(error, f"PostgreSQL's process {pid}")

    def _call_on_loop(self, callback: Callable[[Any], None], argument: object) -> None:
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(callback, argument)
