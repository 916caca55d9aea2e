"""The link of a supervised process with its master: its identity, and its frames to the master."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import threading
from collections.abc import Callable, Mapping
from dataclasses import InitVar, dataclass, field
from pathlib import Path
from typing import Final

from peerd.runtime.inbox import UrgentHandler
from peerd.runtime.process import exit_codes
from peerd.runtime.process.control_thread import ControlMessageHandler, ControlThread, LoopMonitor

FLUSH_TIMEOUT: Final = 2.0
"""Seconds that a process waits at its end until its last frames are sent."""


@dataclass(eq=False)
class Link:
    """The child's end of its link with the master, and the identity and settings of the process.

    All methods are thread-safe; nothing is read before `listen`. A service uses the attributes, and the methods up to
    `listen`; the others are for `peerd.child` and the life of the process.

    `slot` is such as `video-1`; `kind` the config section, or `agent`, or `manager`; `role` is `agent`, `manager`,
    `worker`, `web` or `gateway`; `generation` the number of processes that the slot has had, this one included. A stop
    leaves `grace` seconds to running work, then `release_time` seconds to release the rest. The process is replaced
    when its event loop does not answer for `hang_after` seconds. `log_file` is the file of stdout and stderr, if it is
    one of the node's; `run_directory` is the node's. `sockets` are inherited listening sockets, by name.

    Attributes:
        status: the exit status of the process, as far as it is determined.
    """

    end: InitVar[socket.socket]
    slot: str
    kind: str
    role: str
    node: str
    generation: int = 1
    grace: float = 30.0
    release_time: float = 5.0
    hang_after: float | None = None
    log_file: str | None = None
    run_directory: Path | None = None
    sockets: Mapping[str, socket.socket] = field(default_factory=dict)
    status: int = field(init=False, default=exit_codes.OK)

    def __post_init__(self, end: socket.socket) -> None:
        self.is_replacement = self.generation > 1
        """Whether the slot has had a process before, and so the node is up."""
        self._lock = threading.Lock()
        self._loop_monitor = LoopMonitor(self.hang_after, self._on_hang)
        self._control = ControlThread(end, self.slot, self.release_time, self._loop_monitor, self._on_foreign_signal)
        self._ready = False
        self._skips_interpreter_shutdown = False
        self.on_uncaught: Callable[[str, BaseException], object] = lambda *_: None
        """Called with what has raised an uncaught exception, and the exception, after the process was tainted."""

    @property
    def pid(self) -> int:
        return os.getpid()

    @property
    def master_lost(self) -> bool:
        return self._control.lost

    @property
    def is_replaced(self) -> bool:
        """Whether the process stops because another one takes its place, and the node does not."""
        return self._control.replaced or self.status == exit_codes.RECYCLED

    def send(self, message: Mapping[str, object]) -> None:
        """Send a frame to the master, if it still exists. Never waits. Raises FrameError for what cannot be a frame."""
        self._control.send(message)

    def report_still_booting(self, reason: str) -> None:
        """Report why the process is not ready yet; the master restarts its time-out for the boot."""
        self.send({"type": "still-booting", "reason": reason})

    def tainted(self, reason: str) -> None:
        """Report that the state of the process is uncertain: it stops with its grace, status 70, and is replaced.

        In the agent this is an alert only.
        """
        self._control.log_line(reason)
        if self.role == "agent":
            self.alert("exception", reason)
        else:
            self._retire("tainted", reason, exit_codes.CRASHED)

    def stuck(self, attempt: Mapping[str, object] | None, reason: str) -> None:
        """Taint the process, because a handler does not end although its time is over.

        The agent writes the outcome of `attempt` when the process is dead; None: its claim is lost.
        """
        self._control.dump_threads(f"{reason}; its threads are here:")
        if attempt is not None:
            self.send({"type": "stuck", "attempt": dict(attempt)})
        self._retire("tainted", reason, exit_codes.CRASHED)

    def skip_interpreter_shutdown(self) -> None:
        """End the process without the shutdown of the interpreter, which would wait for code that does not end."""
        self._skips_interpreter_shutdown = True

    def drain(self, reason: str) -> None:
        """Request a fresh process in this one's place. This one finishes its work, and calls `recycle` then."""
        if not self._control.stopping:
            self.send({"type": "drain", "reason": reason})

    def request_replacement(self, reason: str) -> None:
        """Request a fresh process in this one's place, which serves until the fresh one is ready, and is stopped then.

        It is ignored while another one boots to take over; if that fails, this process goes on, and may ask again.
        """
        if not self._control.stopping:
            self.send({"type": "replace", "pid": os.getpid(), "how": "recycled", "reason": reason})

    def recycle(self, reason: str) -> None:
        """Request a fresh process in this one's place at once; this one stops with its grace, status 75, no failure."""
        self._retire("recycle", reason, exit_codes.RECYCLED)

    def report_in_flight(self, count: Callable[[], int]) -> None:
        """Report to the master, every two seconds, how many tasks or requests run; a thread calls `count`."""
        self._loop_monitor.in_flight = count

    def on_urgent_request(self, action: str, answer: UrgentHandler) -> None:
        """Answer requests of this action in a thread of their own, also while the event loop is blocked."""
        self._control.urgent_requests.handlers[action] = answer

    def take_largest_lag(self) -> float:
        """The largest delay of the event loop since the last call, in seconds."""
        return self._loop_monitor.take_largest_lag()

    def alert(self, alert: str, text: str, **data: object) -> None:
        """Send an alert of a kind, such as `dead-tasks`, to the agent's hooks; `data` is for programs."""
        self.send({"type": "alert", "alert": alert, "text": text, "data": data})

    def request_log_reopen(self) -> None:
        """Have all processes of the node reopen the log, which was renamed."""
        self.send({"type": "reopen-logs"})

    def request_node_stop(self) -> None:
        """Stop the whole node."""
        if not self.master_lost:
            os.kill(os.getppid(), signal.SIGTERM)

    def _on_foreign_signal(self) -> None:
        """Recycle a process that got a signal from elsewhere: only the master stops a process for good."""
        if self._ready:
            self._retire("recycle", "it was sent SIGTERM or SIGINT", exit_codes.RECYCLED)

    def _on_hang(self, seconds: float) -> None:
        reason = f"its event loop has not answered for {seconds:.0f} s"
        self._control.dump_threads(f"{reason}; its threads are here:")
        self._retire("hung", reason, exit_codes.CRASHED)

    def _retire(self, frame_type: str, reason: str, status: int) -> None:
        with self._lock:
            if self._control.stopping:
                return
            self.status = status
            self.send({"type": frame_type, "reason": reason})
            self._control.ask_to_stop(self.grace)

    def listen(self) -> None:
        """Start the control thread, and handle SIGTERM and SIGINT. Called once, from the main thread."""
        self._control.start()

    def attach(self, deliver: ControlMessageHandler, loop: asyncio.AbstractEventLoop) -> None:
        """Measure the loop, and pass all events to `deliver`, which is called from a thread and must not wait."""
        self._loop_monitor.attach(loop)
        self._control.attach(deliver)

    def become_ready(self, identity: Mapping[str, object]) -> None:
        """Report that the process is ready. From now on a stop has its grace."""
        self._control.grace = self.grace
        self._ready = True
        self.send({"type": "ready", "identity": dict(identity)})

    def leave(self, status: int) -> None:
        """Send the last frames; the interpreter then has `release_time` seconds to end before it is killed.

        The frame gives the master the same deadline: while the interpreter is taken apart, no thread of the process
        runs that could end it.
        """
        self.send({"type": "leaving"})
        self._control.flushed.wait(FLUSH_TIMEOUT)
        self._control.end_soon(status, at_once=self._skips_interpreter_shutdown)
