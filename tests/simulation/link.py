"""A process's link with its simulated master: the real `Link` over a watch without socket and thread."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING

from peerd.runtime.process import exit_codes
from peerd.runtime.process.control_thread import Listener, StopAsked
from peerd.runtime.process.link import Link, Place
from peerd.runtime.process.loop_monitor import Vitals

if TYPE_CHECKING:
    from tests.simulation.process import Process


class SimulatedWatch:
    """What `Link` needs of a watch: frames to the master, the wish to stop, and the hard end after it."""

    def __init__(self, process: Process, give_back: float) -> None:
        self.grace = 0.0
        self.lost = False
        self.replaced = False
        self.flushed = threading.Event()
        self.flushed.set()
        self._process = process
        self._give_back = give_back
        self._grace_left: float | None = None
        self._early: list[StopAsked | dict[str, object]] = []
        self._deliver: Listener | None = None

    @property
    def stopping(self) -> bool:
        return self._grace_left is not None

    def attach(self, deliver: Listener) -> None:
        self._deliver = deliver
        for event in self._early:
            deliver(event)
        self._early.clear()

    def send(self, message: Mapping[str, object]) -> None:
        self._process.node.hear(self._process, message)

    def complain(self, text: str) -> None:
        self._process.world.note(f"{self._process} complains: {text}")

    def ask_to_stop(self, grace: float) -> bool:
        if self._grace_left is not None and grace >= self._grace_left:
            return False
        self._grace_left = grace
        self._process.ends_hard_at = self._process.world.now + grace + self._give_back
        self.post(StopAsked(grace))
        return True

    def end_soon(self, status: int) -> None:
        """Its interpreter ends at once."""

    def post(self, event: StopAsked | dict[str, object]) -> None:
        if self._deliver is None:
            self._early.append(event)
        else:
            self._deliver(event)


class SimulatedLink(Link):
    """The link of a simulated process.

    Args:
        process: whose.
        place: who it is.
    """

    def __init__(self, process: Process, place: Place) -> None:
        self._place = place
        self._lock = threading.Lock()
        self._status = exit_codes.OK
        self._ready = False
        self._vitals = Vitals(None, self._hung)
        self.watch = SimulatedWatch(process, place.give_back)
        self._watch = self.watch  # type: ignore[assignment]
        self._process = process

    @property
    def pid(self) -> int:
        return self._process.pid

    def ask_master_to_leave(self) -> None:
        self._process.node.leave()
