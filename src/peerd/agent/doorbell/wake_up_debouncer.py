"""The porter: takes what is rung, and passes it on to the processes of the node, no more often than is any use."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from peerd.domain.ring import Broadcast, Coalescer, Ping, Ring, TaskScheduled

WAKE_UP_EVERY: Final = 0.005
"""Seconds between two rings at the processes of a node at the least; the first one after a rest goes at once."""


class WakeUpDebouncer:
    """Passes rings on. Used on the agent's event loop.

    Args:
        wake_workers: tells the workers.
        on_scheduled: hears what falls due.
        on_broadcast: hears messages for all nodes.
        on_ping: hears the agent's own trials.
    """

    def __init__(
        self,
        wake_workers: Callable[[Ring], None],
        on_scheduled: Callable[[TaskScheduled], None],
        on_broadcast: Callable[[Broadcast], None],
        on_ping: Callable[[str], None],
    ) -> None:
        self._wake_workers = wake_workers
        self._on_scheduled = on_scheduled
        self._on_broadcast = on_broadcast
        self._on_ping = on_ping
        self._coalescer = Coalescer()
        self._timer: asyncio.TimerHandle | None = None
        self._last_wake_up = -WAKE_UP_EVERY
        self.heard = 0
        """Rings, since the agent began; trials are not counted."""

    def receive(self, ring: Ring) -> None:
        """Take a ring."""
        self.heard += not isinstance(ring, Ping)
        match ring:
            case Ping(word):
                self._on_ping(word)
            case TaskScheduled():
                self._on_scheduled(ring)
            case Broadcast():
                self._on_broadcast(ring)
            case _:
                self._coalescer.add(ring)
                self._schedule_wake_up()

    def _schedule_wake_up(self) -> None:
        if self._timer is not None:
            return
        loop = asyncio.get_running_loop()
        pause = self._last_wake_up + WAKE_UP_EVERY - loop.time()
        if pause > 0:
            self._timer = loop.call_later(pause, self._wake_up)
        else:
            self._wake_up()

    def _wake_up(self) -> None:
        self._timer = None
        self._last_wake_up = asyncio.get_running_loop().time()
        for ring in self._coalescer.take():
            self._wake_workers(ring)
