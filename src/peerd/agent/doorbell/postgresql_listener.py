"""PostgreSQL's LISTEN: one connection of the agent, in a thread, opened again when it is lost.

Any role that may connect to the database can notify. So what is not signed is a hint, of which so many are taken in a
second; what is more, is one ring for any queue.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from contextlib import closing, suppress
from typing import Any, Final

from peerd.agent.doorbell.refusals import Refusals
from peerd.domain.backoff import Backoff
from peerd.domain.ring import Ring, TasksAvailable
from peerd.domain.token_bucket import TokenBucket
from peerd.doorbell.datagram import RejectionReason, RingRejected
from peerd.doorbell.transports import CHANNEL, NotificationVerifier
from peerd.store.connection.database import Database, translated_errors

CHECK_STOP_EVERY: Final = 0.5
"""Seconds after which the thread sees that it is to end."""
END_WITHIN: Final = 2.0
UNSIGNED_RATE: Final = (400, 200.0)
"""Notifications without a signature that are taken at once, and in a second; of a cluster that has no secret they are
all."""
UNSIGNED_RATE_WITH_SECRET: Final = (5, 1.0)
"""The same where there is a secret: written by hand in SQL, or by an application that does not have it."""


class PostgresqlListener:
    """Listens, from `run` to its cancellation.

    Args:
        database: it opens a connection of its own there.
        verifier: tells what a notification means.
        on_ring: gets the rings, on the event loop.
        on_change: called on the event loop with the reason why it does not listen, None when it does.
        refusals: what is refused.
        unsigned_bucket: how many are taken that are not signed.
    """

    def __init__(
        self,
        database: Database,
        verifier: NotificationVerifier,
        on_ring: Callable[[Ring], None],
        on_change: Callable[[str | None], None],
        refusals: Refusals,
        unsigned_bucket: TokenBucket,
    ) -> None:
        self._database = database
        self._verifier = verifier
        self._on_ring = on_ring
        self._on_change = on_change
        self._refusals = refusals
        self._unsigned_bucket = unsigned_bucket
        self._has_dropped_hints = False
        self._stopping = threading.Event()

    async def run(self) -> None:
        """Listen until cancelled."""
        self._loop = asyncio.get_running_loop()
        self._stopping = stopping = threading.Event()
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
                    self._call_on_loop(self._on_change, None)
                    self._call_on_loop(self._on_ring, TasksAvailable())  # what was rung meanwhile was not heard
                    pauses.reset()
                    self._listen(connection, stopping)
            except Exception as error:  # noqa: BLE001 - whatever it is, the connection is opened again
                self._call_on_loop(
                    self._on_change, f"PostgreSQL's LISTEN: {str(error).strip() or type(error).__name__}"
                )
                stopping.wait(pauses.next())

    def _connect(self) -> Any:
        with translated_errors():
            pooled = self._database.engine.raw_connection()
        pooled.detach()  # it is not given back to the pool
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
                self._call_on_loop(self._on_ring, TasksAvailable())

    def _receive(self, payload: str, pid: int) -> None:
        if not self._verifier.is_signed(payload) and not self._unsigned_bucket.try_take(time.monotonic()):
            self._has_dropped_hints = True
            return
        try:
            self._call_on_loop(self._on_ring, self._verifier.open(payload))
        except RingRejected as refused:
            if refused.rejection_reason is not RejectionReason.OURS:
                self._refusals.refuse(refused, f"PostgreSQL's process {pid}")

    def _call_on_loop(self, on_ring: Callable[[Any], None], argument: object) -> None:
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(on_ring, argument)
