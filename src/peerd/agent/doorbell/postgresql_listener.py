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
from peerd.domain.ring import Ring, Work
from peerd.domain.token_bucket import TokenBucket
from peerd.doorbell.datagram import Refused, RingRefused
from peerd.doorbell.transports import CHANNEL, NotificationOpener
from peerd.store.connection.database import Database, worded
from peerd.store.connection.outages import Backoff

LOOK_EVERY: Final = 0.5
"""Seconds after which the thread sees that it is to end."""
END_WITHIN: Final = 2.0
HINTS: Final = (400, 200.0)
"""Notifications without a signature that are taken at once, and in a second; of a cluster that has no secret they are
all."""
HINTS_BESIDE_A_SECRET: Final = (5, 1.0)
"""The same where there is a secret: written by hand in SQL, or by an application that does not have it."""


class Listening:
    """Listens, from `run` to its cancellation.

    Args:
        database: it opens a connection of its own there.
        opener: tells what a notification means.
        hear: gets the rings, on the event loop.
        changed: called on the event loop with the reason why it does not listen, None when it does.
        refusals: what is refused.
        hints: how many are taken that are not signed.
    """

    def __init__(
        self,
        database: Database,
        opener: NotificationOpener,
        hear: Callable[[Ring], None],
        changed: Callable[[str | None], None],
        refusals: Refusals,
        hints: TokenBucket,
    ) -> None:
        self._database = database
        self._opener = opener
        self._hear = hear
        self._changed = changed
        self._refusals = refusals
        self._hints = hints
        self._has_more_hints = False
        self._ending = threading.Event()

    async def run(self) -> None:
        """Listen until cancelled."""
        self._loop = asyncio.get_running_loop()
        self._ending = ending = threading.Event()
        thread = threading.Thread(target=self._live, args=(ending,), name="peerd-listening", daemon=True)
        thread.start()
        try:
            await asyncio.Event().wait()
        finally:
            ending.set()
            await asyncio.to_thread(thread.join, END_WITHIN)

    def _live(self, ending: threading.Event) -> None:
        pauses = Backoff()
        while not ending.is_set():
            try:
                with closing(self._connect()) as connection:
                    self._tell(self._changed, None)
                    self._tell(self._hear, Work())  # what was rung meanwhile was not heard
                    pauses.reset()
                    self._listen(connection, ending)
            except Exception as error:  # noqa: BLE001 - whatever it is, the connection is opened again
                self._tell(self._changed, f"PostgreSQL's LISTEN: {str(error).strip() or type(error).__name__}")
                ending.wait(pauses.next())

    def _connect(self) -> Any:
        with worded():
            lent = self._database.engine.raw_connection()
        lent.detach()  # it is not given back to the pool
        connection: Any = lent.dbapi_connection
        connection.rollback()
        connection.autocommit = True
        connection.execute(f"LISTEN {CHANNEL}")
        return connection

    def _listen(self, connection: Any, ending: threading.Event) -> None:
        while not ending.is_set():
            for notification in connection.notifies(timeout=LOOK_EVERY):
                self._take(notification.payload, notification.pid)
                if ending.is_set():
                    return
            if self._has_more_hints:
                self._has_more_hints = False
                self._tell(self._hear, Work())

    def _take(self, payload: str, pid: int) -> None:
        if not self._opener.is_signed(payload) and not self._hints.try_take(time.monotonic()):
            self._has_more_hints = True
            return
        try:
            self._tell(self._hear, self._opener.open(payload))
        except RingRefused as refused:
            if refused.why is not Refused.OURS:
                self._refusals.refuse(refused, f"PostgreSQL's process {pid}")

    def _tell(self, hear: Callable[[Any], None], what: object) -> None:
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(hear, what)
