"""The porter: takes what is rung, and passes it on to the processes of the node, no more often than is any use."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from peerd.domain.ring import Due, Gathered, Ring, Told, Trial

EVERY: Final = 0.005
"""Seconds between two rings at the processes of a node at the least; the first one after a rest goes at once."""


class Porter:
    """Passes rings on. Used on the agent's event loop.

    Args:
        wake: tells the workers.
        due: hears what falls due.
        told: hears messages for all nodes.
        tried: hears the agent's own trials.
    """

    def __init__(
        self,
        wake: Callable[[Ring], None],
        due: Callable[[Due], None],
        told: Callable[[Told], None],
        tried: Callable[[str], None],
    ) -> None:
        self._wake = wake
        self._due = due
        self._told = told
        self._tried = tried
        self._gathered = Gathered()
        self._waiting: asyncio.TimerHandle | None = None
        self._last = -EVERY
        self.heard = 0
        """Rings, since the agent began; trials are not counted."""

    def hear(self, ring: Ring) -> None:
        """Take a ring."""
        self.heard += not isinstance(ring, Trial)
        match ring:
            case Trial(word):
                self._tried(word)
            case Due():
                self._due(ring)
            case Told():
                self._told(ring)
            case _:
                self._gathered.add(ring)
                self._pass_on_soon()

    def _pass_on_soon(self) -> None:
        if self._waiting is not None:
            return
        loop = asyncio.get_running_loop()
        rest = self._last + EVERY - loop.time()
        if rest > 0:
            self._waiting = loop.call_later(rest, self._pass_on)
        else:
            self._pass_on()

    def _pass_on(self) -> None:
        self._waiting = None
        self._last = asyncio.get_running_loop().time()
        for ring in self._gathered.take():
            self._wake(ring)
