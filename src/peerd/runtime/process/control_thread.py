"""The watch over a process's life: a thread that reads the master's link and ends the process when nothing else would.

It is never the event loop: user code may block that for hours, and the process must still learn that its master has
gone, that it is to stop, and that its time is up. Three things ask a process to stop: a `stop` frame, a signal, and the
end of the link (the master is gone). A request counts only if it leaves less time than the one before, so the same wish
arriving on several ways (systemd signals every process, and the master sends its frame) is one wish; the second signal,
which leaves none, is a hurry.
"""

from __future__ import annotations

import atexit
import contextlib
import faulthandler
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

from peerd.runtime.messages.frames import FrameDecoder, FrameError, encode
from peerd.runtime.observability import logfile
from peerd.runtime.process import exit_codes, process_tree
from peerd.runtime.process.loop_monitor import LoopMonitor
from peerd.runtime.process.uncaught_exceptions import log_error

_STOP_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


@dataclass(frozen=True, slots=True)
class StopRequested:
    """Somebody wants the process to end, with this many seconds for what runs."""

    grace: float


ControlMessageHandler = Callable[[StopRequested | dict[str, object]], None]


class ControlThread:
    """Holds the child's end of the link. All methods are thread-safe, and none waits."""

    def __init__(
        self,
        end: socket.socket,
        name: str,
        give_back: float,
        loop_monitor: LoopMonitor,
        on_signal: Callable[[], None] = lambda: None,
    ) -> None:
        """Make it; nothing is read before `start`.

        Args:
            end: the socket.
            name: of the process, for its complaints.
            give_back: seconds that the process has beyond the grace of a stop before it is ended the hard way.
            loop_monitor: how the process is, which is told to the master.
            on_signal: called from the watching thread when a signal, and not the master, asks the process to stop.
        """
        self.replaced = False
        """Whether the stop was asked for because another process takes this one's place."""
        self.grace = 0.0
        """Seconds that a stop leaves when nobody says otherwise; none as long as nothing has begun."""
        self._lost = False
        self._master = os.getppid()
        self.flushed = threading.Event()
        """Set while nothing waits to be sent."""
        self.flushed.set()
        self._end = end
        self._end.setblocking(False)
        self._name = name
        self._give_back = give_back
        self._loop_monitor = loop_monitor
        self._on_stop_signal = on_signal
        self._decoder = FrameDecoder()
        self._outgoing = bytearray()
        self._lock = threading.RLock()
        self._waker: socket.socket | None = None
        self._undelivered: list[StopRequested | dict[str, object]] = []
        self._deliver: ControlMessageHandler | None = None
        self._signals_received = 0
        self._current_grace: float | None = None
        self._deadline: float | None = None
        self._forced_status: int = exit_codes.OUT_OF_TIME

    def start(self) -> None:
        """Begin, and take SIGTERM and SIGINT. Called once, from the main thread."""
        wake_up_end, waker = socket.socketpair()
        wake_up_end.setblocking(False)
        waker.setblocking(False)
        self._waker = waker
        for number in _STOP_SIGNALS:
            signal.signal(number, self._on_signal)
        # The interpreter writes the signal's number there at once, even while the main thread is held up in C code.
        signal.set_wakeup_fd(waker.fileno(), warn_on_full_buffer=False)
        atexit.register(self._kill_process_group)
        threading.Thread(target=self._run_loop, args=(wake_up_end,), name="peerd-watch", daemon=True).start()

    def attach(self, deliver: ControlMessageHandler) -> None:
        """Hand over all that has arrived and will arrive. Called from the watching thread: it must not wait."""
        with self._lock:
            self._deliver = deliver
            early, self._undelivered = self._undelivered, []
            for event in early:
                deliver(event)

    def send(self, message: Mapping[str, object]) -> None:
        """Send a frame to the master; nobody hears it when the master has gone.

        Raises:
            FrameError: the message cannot be a frame.
        """
        frame = encode(message, escape_surrogates=True)  # an exception's text may hold a file name that is no text
        with self._lock:
            if self._lost:
                return
            self._outgoing += frame
            self.flushed.clear()
            self._write()
            if self._outgoing:
                self._wake()

    def ask_to_stop(self, grace: float) -> bool:
        """Ask the process to stop; return whether that leaves less time than it had, and so counts."""
        with self._lock:
            if self._current_grace is not None and grace >= self._current_grace:
                return False
            self._current_grace = grace
            self._set_deadline(time.monotonic() + grace + self._give_back)
            self._deliver_or_keep(StopRequested(grace))
            return True

    @property
    def lost(self) -> bool:
        """Whether the master has gone: its death sends a signal that may come before the end of the link is read."""
        return self._lost or os.getppid() != self._master

    @property
    def stopping(self) -> bool:
        """Whether the process has been asked to stop."""
        return self._current_grace is not None

    def end_soon(self, status: int, *, at_once: bool = False) -> None:
        """Leave the interpreter `give_back` seconds to end with this status, or none; then it is ended with it.

        Called from the main thread. Signals that ask for a stop are ignored from here on: the interpreter puts them
        back to their defaults while it ends, and one more of them would kill the process with another status.
        """
        for number in _STOP_SIGNALS:
            signal.signal(number, signal.SIG_IGN)
        with self._lock:
            self._forced_status = status
            self._set_deadline(time.monotonic() + (0.0 if at_once else self._give_back))

    def log_line(self, text: str) -> None:
        """Write a line to the log, if anybody still reads it."""
        log_error(f"{self._name}: {text}")

    def dump_threads(self, text: str) -> None:
        """Write to stderr where each thread of the process is."""
        with contextlib.suppress(Exception):
            self.log_line(text)
            faulthandler.dump_traceback(all_threads=True)

    # ---------------------------------------------------------------- the watching thread

    def _run_loop(self, wake_up_end: socket.socket) -> None:
        try:
            while True:
                self._run_once(wake_up_end)
        except BaseException as error:  # noqa: BLE001 - without its watch the process could not be stopped any more
            self.log_line(f"the link with the master failed: {error!r}")
            os._exit(exit_codes.CRASHED)

    def _run_once(self, wake_up_end: socket.socket) -> None:
        readable = self._wait(wake_up_end)
        if wake_up_end.fileno() in readable:
            self._count_signals(wake_up_end.recv(4096))
        if self._end.fileno() in readable:
            self._read()
        self._report_loop_lag()
        with self._lock:
            self._write()
        if self._deadline is not None and time.monotonic() >= self._deadline:
            self._force_exit()

    def _wait(self, wake_up_end: socket.socket) -> set[int]:
        poll = select.poll()
        poll.register(wake_up_end, select.POLLIN)
        if not self._lost:
            poll.register(self._end, select.POLLIN | (select.POLLOUT if self._outgoing else 0))
        return {fd for fd, events in poll.poll(self._milliseconds_left()) if events & ~select.POLLOUT}

    def _milliseconds_left(self) -> float | None:
        """How long there is nothing to do but to listen."""
        now = time.monotonic()
        waits = [] if self._lost else [self._loop_monitor.seconds_until_due(now)]
        waits += [] if self._deadline is None else [max(0.0, self._deadline - now)]
        return min(waits) * 1000 + 1 if waits else None

    def _report_loop_lag(self) -> None:
        """Say how the loop answers. It is also the sign that the process is not frozen."""
        if not self._lost and (frame := self._loop_monitor.measure_if_due(time.monotonic())):
            self.send(frame)

    def _count_signals(self, numbers: bytes) -> None:
        for number in numbers:
            if number in _STOP_SIGNALS:  # else our own waking, or a signal that user code handles
                self._signals_received += 1
                if not self.stopping and not self._lost:
                    self._on_stop_signal()
                self.ask_to_stop(self.grace if self._signals_received == 1 else 0.0)

    def _on_signal(self, number: int, _: FrameType | None) -> None:
        """Hear signals in the main thread too: an event loop's `add_signal_handler` takes the descriptor for itself."""
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
            self._on_master_lost()

    def _handle_frame(self, message: dict[str, object]) -> None:
        if message.get("type") == "stop":
            grace = message.get("grace")
            self.replaced = message.get("replaced") is True
            self.ask_to_stop(float(grace) if isinstance(grace, int | float) else self.grace)
        elif message.get("type") == "reopen-logs":
            self._reopen_log(str(message.get("file")))
        else:
            self._deliver_or_keep(message)

    def _reopen_log(self, path: str) -> None:
        """Here and not in the service: a blocked event loop must not keep an old log alive."""
        try:
            logfile.redirect_output(path)
        except OSError as error:
            self.log_line(f"cannot reopen the log, and goes on in the old one: {error}")

    def _on_master_lost(self) -> None:
        with self._lock:
            self._lost = True
            self._outgoing.clear()
            self.flushed.set()
        self.ask_to_stop(self.grace)

    def _force_exit(self) -> None:
        """Time is up: show where the threads are, and end, whatever they do."""
        self.dump_threads("did not end in time, and is ended now; its threads are here:")
        self._kill_process_group()
        os._exit(self._forced_status)

    def _kill_process_group(self) -> None:
        """Without a master nobody else ends what this process has started; it ends with it."""
        if not self._lost:
            return
        process_tree.kill_processes(process_tree.descendants(os.getpid()))
        if os.getpgrp() == os.getpid():
            os.killpg(0, signal.SIGKILL)

    # ---------------------------------------------------------------- small steps, under the lock

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
                self._outgoing.clear()  # reading will meet the end of the link
        self.flushed.set()

    def _set_deadline(self, deadline: float) -> None:
        self._deadline = deadline if self._deadline is None else min(self._deadline, deadline)
        self._wake()

    def _wake(self) -> None:
        if self._waker:
            with contextlib.suppress(BlockingIOError):  # full: it will wake anyway
                self._waker.send(b"\0")
