"""The child's end of its link with the master, and the watch that ends the process when nothing else would.

A thread reads it, never the event loop: user code may block the loop for hours, and the process must still learn that
its master has gone, that it is to stop, and that its time is up. Three things ask a process to stop: a `stop` frame, a
signal, and the end of the link (the master is gone). A request counts only if it leaves less time than the one before,
so the same wish arriving on several ways (systemd signals every process, and the master sends its frame) is one wish,
and the second signal, which leaves none, is a hurry.
"""

from __future__ import annotations

import atexit
import contextlib
import faulthandler
import os
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from peerd.runtime import descendants, exits
from peerd.runtime.frames import Decoder, FrameError, encode

FLUSH_WITHIN: Final = 2.0
"""Seconds that a leaving process waits for its last words to reach the master."""


@dataclass(frozen=True, slots=True)
class Place:
    """Who a process is among its node's processes.

    `grace` and `give_back` are seconds: what a stop leaves to running work, and what it leaves after that for giving
    the rest back, before the process is ended the hard way.
    """

    slot: str
    kind: str
    role: str
    node: str
    generation: int = 1
    grace: float = 30.0
    give_back: float = 5.0


@dataclass(frozen=True, slots=True)
class StopAsked:
    """Somebody wants the process to end, with this many seconds for what runs."""

    grace: float


Listener = Callable[[StopAsked | dict[str, object]], None]


class Link:
    """What a process knows of its node, and its way to say something to the master. All methods are thread-safe."""

    def __init__(self, end: socket.socket, place: Place) -> None:
        self._place = place
        self._end = end
        self._end.setblocking(False)
        self._decoder = Decoder()
        self._outgoing = bytearray()
        self._lock = threading.RLock()
        self._woken, self._waker = socket.socketpair()
        self._woken.setblocking(False)
        self._waker.setblocking(False)
        self._early: list[StopAsked | dict[str, object]] = []
        self._deliver: Listener | None = None
        self._signals = 0
        self._lost = False
        self._grace_left: float | None = None
        self._deadline: float | None = None
        self._hard_status = exits.OUT_OF_TIME
        self._status: int = exits.OK
        self._flushed = threading.Event()
        self._flushed.set()

    @property
    def slot(self) -> str:
        """Name of the slot, such as `video-1`."""
        return self._place.slot

    @property
    def kind(self) -> str:
        """Name of the config section that the process belongs to, or `agent`, or `manager`."""
        return self._place.kind

    @property
    def role(self) -> str:
        """`agent`, `manager` or `worker`."""
        return self._place.role

    @property
    def node(self) -> str:
        """Name of the node."""
        return self._place.node

    @property
    def generation(self) -> int:
        """How many processes the slot has had, this one included."""
        return self._place.generation

    @property
    def grace(self) -> float:
        """Seconds that running work has when the process stops."""
        return self._place.grace

    @property
    def master_lost(self) -> bool:
        """Whether the master has gone."""
        return self._lost

    @property
    def status(self) -> int:
        """The exit status that the process owes for what has happened to it so far."""
        return self._status

    # ---------------------------------------------------------------- what a service says

    def send(self, message: Mapping[str, object]) -> None:
        """Send a frame to the master. Never blocks; says nothing when the master has gone.

        Raises:
            FrameError: the message cannot be a frame.
        """
        frame = encode(message)
        with self._lock:
            if self._lost:
                return
            self._outgoing += frame
            self._flushed.clear()
            self._write()
            if self._outgoing:
                self._wake()

    def tainted(self, reason: str) -> None:
        """Say that the process can no longer be trusted: the master replaces it, it stops with its grace, status 70.

        The agent says it too (an alert), and stays.
        """
        self._complain(reason)
        if self.role == "agent":
            self.send({"type": "alert", "text": reason})
        else:
            self._retire("tainted", reason, exits.CRASHED)

    def recycle(self, reason: str) -> None:
        """Ask for a fresh process in this one's place; this one stops with its grace, status 75, and is not blamed."""
        self._retire("recycle", reason, exits.RECYCLED)

    def _retire(self, how: str, reason: str, status: int) -> None:
        with self._lock:
            if self._grace_left is not None:
                return  # it leaves already
            self._status = status
            self.send({"type": how, "reason": reason})
            self.ask_to_stop(self.grace)

    # ---------------------------------------------------------------- what the process's life does with it

    def watch(self) -> None:
        """Start the watching thread, and have SIGTERM and SIGINT reach it. Called once, from the main thread."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: None)
        # The interpreter writes the signal's number there at once, even while the main thread is held up in C code.
        signal.set_wakeup_fd(self._waker.fileno(), warn_on_full_buffer=False)
        atexit.register(self._bury_the_group)
        threading.Thread(target=self._keep_watching, name="peerd-link", daemon=True).start()

    def attach(self, deliver: Listener) -> None:
        """Hand over all that has arrived and will arrive. Called from the watching thread: it must not wait."""
        with self._lock:
            self._deliver = deliver
            early, self._early = self._early, []
            for event in early:
                deliver(event)

    def ask_to_stop(self, grace: float) -> None:
        """Ask the process to stop, leaving `grace` seconds; counts if that is less than it had."""
        with self._lock:
            if self._grace_left is not None and grace >= self._grace_left:
                return
            self._grace_left = grace
            self._end_at(time.monotonic() + grace + self._place.give_back)
            self._post(StopAsked(grace))

    def leave(self, status: int) -> None:
        """Let the last words out; from now the interpreter has `give_back` seconds to end, else it is ended."""
        self._flushed.wait(FLUSH_WITHIN)
        with self._lock:
            self._hard_status = status
            self._end_at(time.monotonic() + self._place.give_back)

    # ---------------------------------------------------------------- the watching thread

    def _keep_watching(self) -> None:
        try:
            while True:
                self._watch_once()
        except BaseException as error:  # noqa: BLE001 - without its watch the process could not be stopped any more
            self._complain(f"the link with the master failed: {error!r}")
            os._exit(exits.CRASHED)

    def _watch_once(self) -> None:
        readable = self._wait()
        if self._woken.fileno() in readable:
            self._count_signals(self._woken.recv(4096))
        if not self._lost and self._end.fileno() in readable:
            self._read()
        with self._lock:
            self._write()
        if self._deadline is not None and time.monotonic() >= self._deadline:
            self._end_the_hard_way()

    def _wait(self) -> set[int]:
        poll = select.poll()
        poll.register(self._woken, select.POLLIN)
        if not self._lost:
            poll.register(self._end, select.POLLIN | (select.POLLOUT if self._outgoing else 0))
        left = None if self._deadline is None else max(0.0, self._deadline - time.monotonic()) * 1000 + 1
        return {fd for fd, events in poll.poll(left) if events & ~select.POLLOUT}

    def _count_signals(self, numbers: bytes) -> None:
        for _ in numbers.replace(b"\0", b""):  # a zero is our own waking
            self._signals += 1
            self.ask_to_stop(self.grace if self._signals == 1 else 0.0)

    def _read(self) -> None:
        try:
            data = self._end.recv(65536)
            for message in self._decoder.feed(data):
                self._take(message)
        except BlockingIOError:
            return
        except (OSError, FrameError) as error:
            self._complain(f"the link with the master failed: {error}")
            data = b""
        if not data:
            self._lose_the_master()

    def _take(self, message: dict[str, object]) -> None:
        if message.get("type") == "stop":
            grace = message.get("grace")
            self.ask_to_stop(float(grace) if isinstance(grace, int | float) else self.grace)
        else:
            self._post(message)

    def _lose_the_master(self) -> None:
        with self._lock:
            self._lost = True
            self._outgoing.clear()
            self._flushed.set()
        self.ask_to_stop(self.grace)

    def _end_the_hard_way(self) -> None:
        """Time is up: show where the threads are, and end, whatever they do."""
        with contextlib.suppress(Exception):
            self._complain("did not end in time, and is ended now; its threads are here:")
            faulthandler.dump_traceback(all_threads=True)
        self._bury_the_group()
        os._exit(self._hard_status)

    def _bury_the_group(self) -> None:
        """Without a master nobody else ends what this process has started; it ends with it."""
        if not self._lost:
            return
        descendants.kill(descendants.descendants(os.getpid()))
        if os.getpgrp() == os.getpid():
            os.killpg(0, signal.SIGKILL)

    # ---------------------------------------------------------------- small steps, under the lock

    def _post(self, event: StopAsked | dict[str, object]) -> None:
        with self._lock:
            if self._deliver is None:
                self._early.append(event)
            else:
                self._deliver(event)

    def _write(self) -> None:
        while self._outgoing and not self._lost:
            try:
                del self._outgoing[: self._end.send(self._outgoing)]
            except BlockingIOError:
                return
            except OSError:
                self._outgoing.clear()  # the watch will read the end of the link
        self._flushed.set()

    def _end_at(self, deadline: float) -> None:
        self._deadline = deadline if self._deadline is None else min(self._deadline, deadline)
        self._wake()

    def _wake(self) -> None:
        with contextlib.suppress(BlockingIOError):  # full: it will wake anyway
            self._waker.send(b"\0")

    def _complain(self, text: str) -> None:
        with contextlib.suppress(OSError, ValueError):  # nobody reads it any more
            sys.stderr.write(f"{self.slot}: {text}\n")
            sys.stderr.flush()
