"""PostgreSQL's LISTEN: one connection of the agent, in a thread, opened again when it is lost."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Callable
from contextlib import closing, suppress
from typing import Any, Final

from peerd.bell.ways import CHANNEL, notified
from peerd.domain.ring import Ring, Work
from peerd.store.database import Database

LOOK_EVERY: Final = 0.5
"""Seconds after which the thread sees that it is to end."""
FIRST_PAUSE: Final = 0.1
LONGEST_PAUSE: Final = 5.0
"""Seconds between two attempts to connect."""
END_WITHIN: Final = 2.0


class Listening:
    """Listens, from `run` to its cancellation.

    Args:
        database: it opens a connection of its own there.
        hear: gets the rings, on the event loop.
        changed: called on the event loop with the reason why it does not listen, None when it does.
    """

    def __init__(self, database: Database, hear: Callable[[Ring], None], changed: Callable[[str | None], None]) -> None:
        self._database = database
        self._hear = hear
        self._changed = changed
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
        pause = FIRST_PAUSE
        while not ending.is_set():
            try:
                with closing(self._connect()) as connection:
                    self._tell(self._changed, None)
                    self._tell(self._hear, Work())  # what was rung meanwhile was not heard
                    pause = FIRST_PAUSE
                    self._listen(connection, ending)
            except Exception as error:  # noqa: BLE001 - whatever it is, the connection is opened again
                self._tell(self._changed, f"PostgreSQL's LISTEN: {str(error).strip() or type(error).__name__}")
                ending.wait(pause * random.uniform(0.5, 1.5))
                pause = min(2 * pause, LONGEST_PAUSE)

    def _connect(self) -> Any:
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
                ring = notified(notification.payload)
                if ring is not None:
                    self._tell(self._hear, ring)
                if ending.is_set():
                    return

    def _tell(self, hear: Callable[[Any], None], what: object) -> None:
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(hear, what)
