"""Ringing: whoever has committed work says so here and goes on; a thread of the process's own does the rest.

Ringing never delays its caller, and never fails it. Many rings of a few milliseconds become one: the first one after a
rest goes at once, and a process that enqueues a thousand tasks a second rings fifty times.
"""

from __future__ import annotations

import atexit
import os
import threading
import weakref
from collections.abc import Callable
from typing import Final

from peerd.domain.backoff import Backoff
from peerd.domain.ring import Coalescer, Ring
from peerd.doorbell.cluster_secret import read_secret
from peerd.doorbell.transports import DatagramTransport, NotifyTransport, Transport
from peerd.store.connection.database import Database
from peerd.store.schema.types import MYSQL

MIN_INTERVAL: Final = 0.002
MAX_INTERVAL: Final = 0.02
"""Seconds between two rings of a process at the least; doubled up to the latter while there is always one more."""
CLOSE_TIMEOUT: Final = 1.0
"""Seconds that the last rings of a process may take."""


class Notifier:
    """Rings at all nodes of a cluster. Safe to use from several threads, and after a fork.

    Args:
        database: the cluster's.
        secret: [cluster] secret; not needed on SQLite, and on PostgreSQL for messages to all nodes only.
        open_transport: makes the way of the rings, when the first one is sent; None where there is none.
    """

    def __init__(
        self,
        database: Database,
        secret: str | None = None,
        open_transport: Callable[[], Transport | None] | None = None,
    ) -> None:
        self._open_transport = open_transport or (lambda: transport_for(database, secret))
        self.has_no_secret = open_transport is None and database.name in MYSQL and not secret
        """Whether it cannot ring: there is no secret."""
        self.last_error: str | None = None
        """Of the ring that could not be sent last, in words."""
        self._reset()

    def _reset(self) -> None:
        self._pid = os.getpid()
        self._coalescer = Coalescer()
        self._changed = threading.Condition()
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None
        self._transport: Transport | None = None
        self._busy = False
        self._closed = False

    def ring(self, *rings: Ring) -> None:
        """Ring, soon; the caller goes on at once."""
        if self.has_no_secret:
            return
        if self._pid != os.getpid():
            self._reset()  # the thread has stayed in the process that this one was forked from
        with self._changed:
            if self._closed or not rings:
                return
            for one in rings:
                self._coalescer.add(one)
            if self._busy:
                return  # its thread is at work, or rests, and takes this one along
            self._busy = True
            if self._thread is None:
                self._thread = threading.Thread(target=self._run_loop, name="peerd-ringer", daemon=True)
                self._thread.start()
                atexit.register(_close, weakref.ref(self))
            self._changed.notify_all()

    def flush(self, within: float = CLOSE_TIMEOUT) -> bool:
        """Wait until all has been sent, for so many seconds at the most; return whether it has."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._busy or self._pid != os.getpid(), within)

    def close(self) -> None:
        """Send what is left, and no more."""
        if self._pid != os.getpid() or self._thread is None:
            self._closed = True
            return
        self.flush()
        self._closing.set()
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._thread.join(CLOSE_TIMEOUT)

    def _run_loop(self) -> None:
        intervals = Backoff(MIN_INTERVAL, MAX_INTERVAL, jitter=0.0)
        while (rings := self._next()) is not None:
            try:
                self._send(rings)
                self.last_error = None
            except Exception as error:  # noqa: BLE001 - a ring that is lost costs the time to the next poll
                self.last_error = f"{type(error).__name__}: {error}"
            self._closing.wait(intervals.next())  # rings of this time are sent together
            with self._changed:
                if not self._coalescer:
                    intervals.reset()
        if self._transport is not None:
            self._transport.close()

    def _next(self) -> list[Ring] | None:
        """Wait for rings; None at the end."""
        with self._changed:
            while not (rings := self._coalescer.take()):
                self._busy = False
                self._changed.notify_all()
                if self._closed:
                    return None
                self._changed.wait()
            return rings

    def _send(self, rings: list[Ring]) -> None:
        if self._transport is None:
            self._transport = self._open_transport()
        if self._transport is not None:
            self._transport.send(rings)


def transport_for(database: Database, secret: str | None) -> Transport | None:
    """How the nodes of a cluster are rung at; None where there is no secret."""
    if database.name == "postgresql":
        return NotifyTransport(database, secret)
    found = read_secret(database.url, secret)
    return None if found is None else DatagramTransport(database, found)


def _close(reference: weakref.ref[Notifier]) -> None:
    notifier = reference()
    if notifier is not None:
        notifier.close()
