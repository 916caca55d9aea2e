"""The control thread of a process: it reads the link with the master, and ends the process when its time is over.

It is not the event loop, because user code may block that for hours. A process is stopped by a `stop` frame, a signal,
or the end of the link (the master is gone). A request counts only if its grace is shorter than the grace of the one
before: a stop that arrives twice (systemd signals every process, and the master sends its frame) is one request. The
second signal has no grace.

The control thread sees every message first. Urgent requests do not go on to the event loop: a thread of its own answers
each, so that the control thread never waits.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import faulthandler
import math
import os
import select
import signal
import socket
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import FrameType
from typing import Final

from peerd.runtime import os_processes
from peerd.runtime.frames import FrameDecoder, FrameError, encode
from peerd.runtime.inbox import UrgentRequests
from peerd.runtime.observability import log_file
from peerd.runtime.process import exit_codes
from peerd.runtime.process.uncaught_exceptions import log_error

_STOP_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
MEASURE_INTERVAL: Final = 2.0
"""Seconds between two measurements."""


@dataclass(frozen=True, slots=True)
class StopRequested:
    """The process must stop; running work has `grace` seconds, infinitely many when it drains."""

    grace: float


ControlMessageHandler = Callable[[StopRequested | dict[str, object]], None]


class ControlThread:
    """The child's end of the link. All methods are thread-safe, and none waits.

    Args:
        end: the socket; it is not read before `start`.
        name: of the process, for its log lines.
        release_time: seconds that the process has after the grace of a stop before it is killed.
        loop_monitor: measures the event loop for the master.
        on_signal: called from the control thread when a signal, and not the master, stops the process.
    """

    def __init__(
        self,
        end: socket.socket,
        name: str,
        release_time: float,
        loop_monitor: LoopMonitor,
        on_signal: Callable[[], None] = lambda: None,
    ) -> None:
        self.replaced = False
        """Whether the stop was requested because another process takes this one's place."""
        self.grace = 0.0
        """Seconds of grace of a stop that names none; 0 until the process is ready."""
        self._lost = False
        self._master = os.getppid()
        self.urgent_requests = UrgentRequests(self.send)
        self.flushed = threading.Event()
        """Set while the send buffer is empty."""
        self.flushed.set()
        self._end = end
        self._end.setblocking(False)
        self._name = name
        self._release_time = release_time
        self._loop_monitor = loop_monitor
        self._on_stop_signal = on_signal
        self._decoder = FrameDecoder()
        self._outgoing = bytearray()
        self._lock = threading.RLock()
        self._waker: socket.socket | None = None
        self._undelivered: list[StopRequested | dict[str, object]] = []
        self._deliver: ControlMessageHandler | None = None
        self._signals_received = 0
        self._before_fork = threading.local()
        self._current_grace: float | None = None
        self._deadline: float | None = None
        self._forced_status: int = exit_codes.OUT_OF_TIME

    def start(self) -> None:
        """Start the thread, and handle SIGTERM and SIGINT. Called once, from the main thread."""
        wake_up_end, waker = socket.socketpair()
        wake_up_end.setblocking(False)
        waker.setblocking(False)
        self._waker = waker
        for number in _STOP_SIGNALS:
            signal.signal(number, self._on_signal)
        os.register_at_fork(
            before=self._hold_signals, after_in_parent=self._take_signals, after_in_child=self._reset_after_fork
        )
        # The interpreter writes the signal's number there at once, even while the main thread runs C code.
        signal.set_wakeup_fd(waker.fileno(), warn_on_full_buffer=False)
        atexit.register(self._kill_process_group)
        threading.Thread(target=self._run_loop, args=(wake_up_end,), name="peerd-control", daemon=True).start()

    def attach(self, deliver: ControlMessageHandler) -> None:
        """Pass all events, also earlier ones, to a function, which is called from this thread and must not wait."""
        with self._lock:
            self._deliver = deliver
            early, self._undelivered = self._undelivered, []
            for event in early:
                deliver(event)

    def send(self, message: Mapping[str, object]) -> None:
        """Send a frame to the master; without a master it is dropped. Raises FrameError for what cannot be a frame."""
        frame = encode(message, escape_surrogates=True)  # an exception's text may hold a file name that is not UTF-8
        with self._lock:
            if self._lost:
                return
            self._outgoing += frame
            self.flushed.clear()
            self._write()
            if self._outgoing:
                self._wake()

    def ask_to_stop(self, grace: float) -> bool:
        """Request a stop; return whether it counts, because its grace is shorter than the grace of earlier requests."""
        with self._lock:
            if self._current_grace is not None and grace >= self._current_grace:
                return False
            self._current_grace = grace
            self._set_deadline(time.monotonic() + grace + self._release_time)
            self._deliver_or_keep(StopRequested(grace))
            return True

    @property
    def lost(self) -> bool:
        """Whether the master is gone: the signal of its death may come before the end of the link is read."""
        return self._lost or os.getppid() != self._master

    @property
    def stopping(self) -> bool:
        """Whether the process must end by a certain time; one that drains has none yet."""
        return self._current_grace is not None and self._current_grace < math.inf

    def end_soon(self, status: int, *, at_once: bool = False) -> None:
        """Kill the process with this status if the interpreter has not ended after `release_time` seconds, or at once.

        Called from the main thread. Stop signals are ignored from here on: the interpreter resets them to their
        defaults while it ends, and another one would kill the process with another status.
        """
        for number in _STOP_SIGNALS:
            signal.signal(number, signal.SIG_IGN)
        with self._lock:
            self._forced_status = status
            self._set_deadline(time.monotonic() + (0.0 if at_once else self._release_time))

    def log_line(self, text: str) -> None:
        log_error(f"{self._name}: {text}")

    def dump_threads(self, text: str) -> None:
        """Write the stack of each thread to stderr."""
        with contextlib.suppress(Exception):
            self.log_line(text)
            faulthandler.dump_traceback(all_threads=True)

    def _hold_signals(self) -> None:
        """Hold signals back during a fork: at its begin, a child has the wake-up descriptor of this process."""
        self._before_fork.mask = signal.pthread_sigmask(signal.SIG_BLOCK, _STOP_SIGNALS)

    def _take_signals(self) -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, self._before_fork.mask)

    def _reset_after_fork(self) -> None:
        """A process that a handler forks gets signals of its own, and does not end what its parent has started."""
        signal.set_wakeup_fd(-1)
        for number in _STOP_SIGNALS:
            if signal.getsignal(number) == self._on_signal:  # else the handler has set one
                signal.signal(number, signal.SIG_DFL)
        atexit.unregister(self._kill_process_group)
        self._take_signals()

    def _run_loop(self, wake_up_end: socket.socket) -> None:
        try:
            while True:
                self._run_once(wake_up_end)
        except BaseException as error:  # noqa: BLE001 - without this thread the process could not be stopped any more
            self.log_line(f"the link with the master failed: {error!r}")
            os._exit(exit_codes.CRASHED)

    def _run_once(self, wake_up_end: socket.socket) -> None:
        poll = select.poll()
        poll.register(wake_up_end, select.POLLIN)
        if not self._lost:
            poll.register(self._end, select.POLLIN | (select.POLLOUT if self._outgoing else 0))
        readable = {fd for fd, events in poll.poll(self._milliseconds_left()) if events & ~select.POLLOUT}
        if wake_up_end.fileno() in readable:
            self._count_signals(wake_up_end.recv(4096))
        if self._end.fileno() in readable:
            self._read()
        if not self._lost and (frame := self._loop_monitor.measure_if_due(time.monotonic())):
            self.send(frame)  # also the sign that the process is not frozen
        with self._lock:
            self._write()
        if self._deadline is not None and time.monotonic() >= self._deadline:
            self.dump_threads("did not end in time, and is killed now; its threads are here:")
            self._kill_process_group()
            os._exit(self._forced_status)

    def _milliseconds_left(self) -> float | None:
        now = time.monotonic()
        waits = [] if self._lost else [self._loop_monitor.seconds_until_due(now)]
        waits += [] if self._deadline is None else [max(0.0, self._deadline - now)]
        return min(waits) * 1000 + 1 if waits else None

    def _count_signals(self, numbers: bytes) -> None:
        for number in numbers:
            if number in _STOP_SIGNALS:  # else a wake-up, or a signal that user code handles
                self._signals_received += 1
                if not self.stopping and not self._lost:
                    self._on_stop_signal()
                self.ask_to_stop(self.grace if self._signals_received == 1 else 0.0)

    def _on_signal(self, number: int, _: FrameType | None) -> None:
        """Forward a signal to the thread if an event loop's `add_signal_handler` has taken the wake-up descriptor."""
        if self._waker:
            taken_by = signal.set_wakeup_fd(self._waker.fileno(), warn_on_full_buffer=False)
            if taken_by != self._waker.fileno():
                signal.set_wakeup_fd(taken_by)
                self._waker.send(bytes([number]))

    def _read(self) -> None:
        try:
            data = self._end.recv(65536)
            for message in self._decoder.feed(data):
                self._handle_frame(message)
        except BlockingIOError:
            return
        except (OSError, FrameError) as error:
            self.log_line(f"the link with the master failed: {error}")
            data = b""
        if not data:
            with self._lock:
                self._lost = True
                self._outgoing.clear()
                self.flushed.set()
            self.ask_to_stop(self.grace)

    def _handle_frame(self, message: dict[str, object]) -> None:
        if message.get("type") == "stop":
            grace = message.get("grace", self.grace)
            self.replaced = message.get("replaced") is True
            self.ask_to_stop(math.inf if grace is None else grace if isinstance(grace, int | float) else self.grace)
        elif message.get("type") == "reopen-logs":
            try:  # here and not in the service, because a blocked event loop would keep the old log open
                log_file.redirect_output(str(message.get("file")))
            except OSError as error:
                self.log_line(f"cannot reopen the log, and keeps the old one: {error}")
        elif not self.urgent_requests.receive(message):
            self._deliver_or_keep(message)

    def _kill_process_group(self) -> None:
        """Kill the descendants too if the master, which would do it, is gone.

        A process that the death signal of its master has ended quickly may not have read the end of the link yet.
        """
        if not self.lost:
            return
        os_processes.kill_processes(os_processes.descendants(os.getpid()))
        if os.getpgrp() == os.getpid():
            os.killpg(0, signal.SIGKILL)

    def _deliver_or_keep(self, event: StopRequested | dict[str, object]) -> None:
        with self._lock:
            if self._deliver is None:
                self._undelivered.append(event)
            else:
                self._deliver(event)

    def _write(self) -> None:
        while self._outgoing and not self._lost:
            try:
                del self._outgoing[: self._end.send(self._outgoing)]
            except BlockingIOError:
                return
            except OSError:
                self._outgoing.clear()  # the next read finds the end of the link
        self.flushed.set()

    def _set_deadline(self, deadline: float) -> None:
        if deadline == math.inf:
            return
        self._deadline = deadline if self._deadline is None else min(self._deadline, deadline)
        self._wake()

    def _wake(self) -> None:
        if self._waker:
            with contextlib.suppress(BlockingIOError):  # the buffer is full, so the thread wakes anyway
                self._waker.send(b"\0")


# ---------------------------------------------------------------- loop monitor


class LoopMonitor:
    """Schedules a callback on the loop every two seconds, and measures when it runs.

    `on_hang` is called from the control thread once the loop has not answered for `hang_after` seconds.
    """

    def __init__(self, hang_after: float | None, on_hang: Callable[[float], None]) -> None:
        self.in_flight: Callable[[], int] = lambda: 0
        """How many tasks or requests run; a service sets it. Called from the control thread."""
        self._hang_after = hang_after
        self._on_hang = on_hang
        self._loop: asyncio.AbstractEventLoop | None = None
        self._lock = threading.Lock()
        self._pinged_at: float | None = None
        self._lag = 0.0
        self._largest_lag = 0.0
        self._is_hanging = False
        self._next_at = 0.0

    def attach(self, loop: asyncio.AbstractEventLoop) -> None:
        """Measure this loop from now on."""
        self._loop = loop

    def seconds_until_due(self, now: float) -> float:
        """The time until the next measurement."""
        return max(0.0, self._next_at - now)

    def measure_if_due(self, now: float) -> dict[str, object] | None:
        """Measure, if it is time; return the frame for the master."""
        if now < self._next_at:
            return None
        self._next_at = now + MEASURE_INTERVAL
        lag = self._measure(now)
        self._largest_lag = max(self._largest_lag, lag)
        hangs = self._hang_after is not None and lag >= self._hang_after and self._pinged_at is not None
        if hangs and not self._is_hanging:
            self._on_hang(lag)
        self._is_hanging = hangs
        return {"type": "vitals", "lag": round(lag, 4), "in_flight": self.in_flight()}

    def take_largest_lag(self) -> float:
        """The largest lag that was measured since the last call, in seconds. From any thread."""
        lag, self._largest_lag = self._largest_lag, 0.0
        return lag

    def _measure(self, now: float) -> float:
        """The age of the current ping, or the time that the last one took; send the next one."""
        with self._lock:
            if self._pinged_at is not None:
                return now - self._pinged_at
            lag, self._lag = self._lag, 0.0
            if self._loop is not None:
                self._pinged_at = now
                with contextlib.suppress(RuntimeError):  # the loop is closed, because the process ends
                    self._loop.call_soon_threadsafe(self._on_answer)
            return lag

    def _on_answer(self) -> None:
        with self._lock:
            if self._pinged_at is not None:
                self._lag = time.monotonic() - self._pinged_at
            self._pinged_at = None
