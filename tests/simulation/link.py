"""A process's link with its simulated master: the real `Link` over a control thread without socket and thread."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING

from peerd.runtime.process import exit_codes
from peerd.runtime.process.control_thread import ControlMessageHandler, StopRequested
from peerd.runtime.process.link import Link, ProcessInfo
from peerd.runtime.process.loop_monitor import LoopMonitor
from peerd.runtime.process.urgent_requests import UrgentRequests

if TYPE_CHECKING:
    from tests.simulation.process import SimulatedProcess


class SimulatedControlThread:
    """What `Link` needs of a control thread: frames to the master, the request to stop, and the hard end after it."""

    def __init__(self, process: SimulatedProcess, release_time: float) -> None:
        self.grace = 0.0
        self.lost = False
        self.replaced = False
        self.flushed = threading.Event()
        self.flushed.set()
        self._process = process
        self._release_time = release_time
        self._current_grace: float | None = None
        self._early: list[StopRequested | dict[str, object]] = []
        self._deliver: ControlMessageHandler | None = None
        self.urgent_requests = UrgentRequests(self.send)

    @property
    def stopping(self) -> bool:
        return self._current_grace is not None

    def attach(self, deliver: ControlMessageHandler) -> None:
        self._deliver = deliver
        for event in self._early:
            deliver(event)
        self._early.clear()

    def send(self, message: Mapping[str, object]) -> None:
        self._process.node.receive_frame(self._process, message)

    def log_line(self, text: str) -> None:
        self._process.world.note(f"{self._process} complains: {text}")

    def ask_to_stop(self, grace: float) -> bool:
        if self._current_grace is not None and grace >= self._current_grace:
            return False
        self._current_grace = grace
        self._process.ends_hard_at = self._process.world.now + grace + self._release_time
        self.post(StopRequested(grace))
        return True

    def end_soon(self, status: int, *, at_once: bool = False) -> None:
        """Its interpreter ends at once."""

    def post(self, event: StopRequested | dict[str, object]) -> None:
        if self._deliver is None:
            self._early.append(event)
        else:
            self._deliver(event)


class SimulatedLink(Link):
    def __init__(self, process: SimulatedProcess, info: ProcessInfo) -> None:
        self._set_info(info)
        self.sockets = {}
        self._lock = threading.Lock()
        self._status = exit_codes.OK
        self._ready = False
        self._skips_interpreter_shutdown = False
        self._loop_monitor = LoopMonitor(None, self._on_hang)
        self.watch = SimulatedControlThread(process, info.release_time)
        self._control = self.watch  # type: ignore[assignment]
        self._process = process

    @property
    def pid(self) -> int:
        return self._process.pid

    def request_node_stop(self) -> None:
        self._process.node.leave()
