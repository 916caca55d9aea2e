"""What a supervised process knows of its node, and its way to say something to the master."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from peerd.runtime.process import exit_codes
from peerd.runtime.process.control_thread import ControlMessageHandler, ControlThread
from peerd.runtime.process.loop_monitor import LoopMonitor

FLUSH_TIMEOUT: Final = 2.0
"""Seconds that a leaving process waits for its last words to reach the master."""


@dataclass(frozen=True, slots=True)
class ProcessInfo:
    """Who a process is among its node's processes.

    `slot` is such as `video-1`; `kind` the config section that it belongs to, or `agent`, or `manager`; `role` is
    `agent`, `manager`, `worker` or `web`; `generation` how many processes the slot has had, this one included.
    `grace` and `give_back` are seconds: what a stop leaves to running work, and what it leaves after that for giving
    the rest back. The process is replaced when its event loop does not answer for `hang_after` seconds, if they are
    given. `log_file` is what stdout and stderr are, if they are a file of the node's. `run_directory` is the node's.
    """

    slot: str
    kind: str
    role: str
    node: str
    generation: int = 1
    grace: float = 30.0
    give_back: float = 5.0
    hang_after: float | None = None
    log_file: str | None = None
    run_directory: Path | None = None


class Link:
    """The child's end of its link with the master. All methods are thread-safe.

    A service uses `send`, `tainted`, `recycle` and the properties; the rest is for `peerd.child` and `runtime.life`.
    """

    def __init__(
        self, end: socket.socket, info: ProcessInfo, sockets: Mapping[str, socket.socket] | None = None
    ) -> None:
        """Make it; nothing is read before `listen`.

        Args:
            end: a connected stream socket.
            info: who the process is.
            sockets: what it has inherited to listen on, by name.
        """
        self._info = info
        self._sockets = dict(sockets or {})
        self._lock = threading.Lock()
        self._status: int = exit_codes.OK
        self._loop_monitor = LoopMonitor(info.hang_after, self._on_hang)
        self._control = ControlThread(end, info.slot, info.give_back, self._loop_monitor, self._on_foreign_signal)
        self._ready = False
        self._skips_interpreter_shutdown = False

    @property
    def slot(self) -> str:
        """Name of the slot, such as `video-1`."""
        return self._info.slot

    @property
    def kind(self) -> str:
        """Name of the config section that the process belongs to, or `agent`, or `manager`."""
        return self._info.kind

    @property
    def role(self) -> str:
        """`agent`, `manager`, `worker` or `web`."""
        return self._info.role

    @property
    def node(self) -> str:
        """Name of the node."""
        return self._info.node

    @property
    def pid(self) -> int:
        """The process's number on its machine."""
        return os.getpid()

    @property
    def generation(self) -> int:
        """How many processes the slot has had, this one included."""
        return self._info.generation

    @property
    def log_file(self) -> str | None:
        """The node's log file, if it has one: all of its processes write there."""
        return self._info.log_file

    @property
    def run_directory(self) -> Path | None:
        """Where the node's processes find each other's sockets, if there is such a folder."""
        return self._info.run_directory

    @property
    def is_replacement(self) -> bool:
        """Whether the slot has had a process before: then its node is up."""
        return self._info.generation > 1

    @property
    def grace(self) -> float:
        """Seconds that running work has when the process stops."""
        return self._info.grace

    @property
    def sockets(self) -> Mapping[str, socket.socket]:
        """Listening sockets that the process shares with others of its kind, by name."""
        return self._sockets

    @property
    def master_lost(self) -> bool:
        """Whether the master has gone."""
        return self._control.lost

    @property
    def is_replaced(self) -> bool:
        """Whether the process stops because another one takes its place; the node goes on."""
        return self._control.replaced or self._status == exit_codes.RECYCLED

    # ---------------------------------------------------------------- what a service says

    def send(self, message: Mapping[str, object]) -> None:
        """Send a frame to the master. Never waits; nobody hears it when the master has gone.

        Raises:
            FrameError: the message cannot be a frame.
        """
        self._control.send(message)

    def report_still_booting(self, reason: str) -> None:
        """Say why the process is not ready yet: its master gives it the whole time for its boot again."""
        self.send({"type": "still-booting", "reason": reason})

    def tainted(self, reason: str) -> None:
        """Say that the process can no longer be trusted: the master replaces it, it stops with its grace, status 70.

        The agent says it too (an alert), and stays.
        """
        self._control.log_line(reason)
        if self.role == "agent":
            self.alert("exception", reason)
        else:
            self._retire("tainted", reason, exit_codes.CRASHED)

    def stuck(self, attempt: Mapping[str, object] | None, reason: str) -> None:
        """Say that a handler does not end although its time is over, so that the process must end with it: a taint.

        Args:
            attempt: what the agent writes about the task when the process is dead; None where it holds it no more.
            reason: for people.
        """
        self._control.dump_threads(f"{reason}; its threads are here:")
        if attempt is not None:
            self.send({"type": "stuck", "attempt": dict(attempt)})
        self._retire("tainted", reason, exit_codes.CRASHED)

    def skip_interpreter_shutdown(self) -> None:
        """Leave the interpreter no time for its end: it would wait for code that does not end."""
        self._skips_interpreter_shutdown = True

    def drain(self, reason: str) -> None:
        """Ask for a fresh process in this one's place. This one finishes its work, and calls `recycle` then."""
        if not self._control.stopping:
            self.send({"type": "drain", "reason": reason})

    def recycle(self, reason: str) -> None:
        """Ask for a fresh process in this one's place; this one stops with its grace, status 75, and is not blamed."""
        self._retire("recycle", reason, exit_codes.RECYCLED)

    def report_in_flight(self, count: Callable[[], int]) -> None:
        """Have the master told, every two seconds, how many tasks or requests run; `count` is called from a thread."""
        self._loop_monitor.in_flight = count

    def alert(self, alert: str, text: str, **data: object) -> None:
        """Tell a person, by way of the master and the agent, who knows the hooks.

        Args:
            alert: its kind, such as `dead-tasks`.
            text: for people.
            data: for programs; what JSON can say.
        """
        self.send({"type": "alert", "alert": alert, "text": text, "data": data})

    def request_log_reopen(self) -> None:
        """Ask the master that all processes of the node open the log anew, for it was renamed."""
        self.send({"type": "reopen-logs"})

    def request_node_stop(self) -> None:
        """Ask the master to end the whole node, as its user would."""
        if not self.master_lost:
            os.kill(os.getppid(), signal.SIGTERM)

    def _on_foreign_signal(self) -> None:
        """Only the master stops a process for good. One that somebody else signals is replaced."""
        if self._ready:
            self._retire("recycle", "somebody sent it SIGTERM or SIGINT", exit_codes.RECYCLED)

    def _on_hang(self, seconds: float) -> None:
        reason = f"its event loop has not answered for {seconds:.0f} s"
        self._control.dump_threads(f"{reason}; its threads are here:")
        self._retire("hung", reason, exit_codes.CRASHED)

    def _retire(self, frame_type: str, reason: str, status: int) -> None:
        with self._lock:
            if self._control.stopping:
                return  # it leaves already
            self._status = status
            self.send({"type": frame_type, "reason": reason})
            self._control.ask_to_stop(self.grace)

    # ---------------------------------------------------------------- what its life does with it

    @property
    def status(self) -> int:
        """The exit status that the process owes for what has happened to it so far."""
        return self._status

    def listen(self) -> None:
        """Start to watch over the process, and take SIGTERM and SIGINT. Called once, from the main thread."""
        self._control.start()

    def attach(self, deliver: ControlMessageHandler, loop: asyncio.AbstractEventLoop) -> None:
        """Hand over all that has arrived and will arrive, from a thread; `deliver` must not wait. Measure the loop."""
        self._loop_monitor.attach(loop)
        self._control.attach(deliver)

    def become_ready(self, identity: Mapping[str, object]) -> None:
        """Say that the process is ready. From now there is work that a stop leaves time for."""
        self._control.grace = self.grace
        self._ready = True
        self.send({"type": "ready", "identity": dict(identity)})

    def leave(self, status: int) -> None:
        """Let the last words out; the interpreter then has `give_back` seconds to end, before it is ended."""
        self._control.flushed.wait(FLUSH_TIMEOUT)
        self._control.end_soon(status, at_once=self._skips_interpreter_shutdown)
