"""The memory that commands and their replies take until the clients have read them, and its bound for a process.

A connection that has taken a part of the bound executes no more commands. While all together have reached it, a command
with a job waits, unless its connection stays within a fair share: who reads each reply before the next command does not
wait for those who read none. Then clients that read too slowly are disconnected, the one with most unread bytes first,
so that none can hold the room of the others.
"""

from __future__ import annotations

import asyncio
import ctypes
from collections.abc import Callable
from typing import Final

Call = Callable[[], None]

LEAST_BOUND: Final = 67_108_864
"""Bytes of the bound, or sixteen of the largest jobs if these are more."""
PARTS: Final = 16
"""Connections that reach the bound if none of them reads."""
RESERVING: Final = 8
"""Connections whose reserves reach the bound if all are answered at once with the largest jobs."""
FAIR_SHARE: Final = 65_536
"""Bytes that a connection may have even when all connections together have too many."""
COMMAND: Final = 1024
"""Bytes that a command takes beside its job while it is executed."""
LOOK_EVERY: Final = 0.1
"""Seconds between two looks for slow clients while the bound is reached."""
PATIENCE: Final = 1.0
"""Seconds that a client may leave a reply unread even then."""
SLOW: Final = 65_536
"""Bytes that a slow client reads in a second, at the most, while it has left something unread."""


class ReplyMemory:
    """What all connections of a process have taken, by the size of the largest job that it accepts."""

    def __init__(self, max_job_size: int) -> None:
        self.bound = max(LEAST_BOUND, PARTS * max_job_size)
        """Bytes; may be changed."""
        self.used = 0
        self.executing = 0
        """The part of it that belongs to commands without a reply."""
        self.unread: dict[ReplyAccount, None] = {}
        """The connections with bytes that the system does not take, because the client does not read."""
        self.waiting: dict[ReplyAccount, None] = {}
        """The connections with a command that waits for room, the first to wait first."""
        self._loop = asyncio.get_running_loop()
        self._look: asyncio.Handle | None = None
        self._has_grown = False

    @property
    def is_full(self) -> bool:
        """Whether commands with jobs wait."""
        return self.used >= self.bound or self.executing >= self.bound // 8

    def add(self, size: int) -> None:
        """Count bytes that were taken, or given back if the size is negative."""
        self.used += size
        if self.used >= self.bound // PARTS:
            self._has_grown = True
        elif self._has_grown:
            self._has_grown = False
            self._loop.call_later(PATIENCE, self._loop.run_in_executor, None, give_back_free_memory)
        if self.used >= self.bound:
            if self._look is None:
                self._look = self._loop.call_soon(self._make_room)
        elif self.waiting and size < 0 and not self.is_full:
            self._loop.call_soon(self._let_on)

    def _make_room(self) -> None:
        """Disconnect slow clients while the bound is reached."""
        self._look = None
        for account in list(self.unread):
            account.count_unread()
        now = self._loop.time()
        slow = sorted((one for one in self.unread if one.is_slow(now)), key=lambda one: one.unread_bytes)
        while self.used >= self.bound and slow:
            slow.pop().disconnect()
        if self.used >= self.bound and self._look is None:
            self._look = self._loop.call_later(LOOK_EVERY, self._make_room)

    def _let_on(self) -> None:
        while self.waiting and not self.is_full:
            account = next(iter(self.waiting))
            del self.waiting[account]
            account.go_on()


def give_back_free_memory() -> None:
    """Give what was freed back to the system, where the C library does not by itself (glibc keeps most of it)."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


class ReplyAccount:
    """What one connection has taken: for commands that are executed, and replies that its client has not read.

    Args:
        memory: of the process.
        transport: of the connection.
        go_on: called when there is room for the command that waited.
        disconnect: ends the connection, because it is slow.
    """

    __slots__ = ("_began_at", "_memory", "_read", "_transport", "disconnect", "go_on", "unread_bytes", "used")

    def __init__(self, memory: ReplyMemory, transport: asyncio.Transport, go_on: Call, disconnect: Call) -> None:
        self.used = 0
        self.unread_bytes = 0
        self.go_on = go_on
        self.disconnect = disconnect
        self._memory = memory
        self._transport = transport
        self._began_at = 0.0
        """When the client left something unread, by the event loop's clock."""
        self._read = 0
        """What it has read since."""

    @property
    def is_full(self) -> bool:
        """Whether the connection may execute no more commands."""
        return self.used >= self._memory.bound // PARTS

    def most_jobs(self, max_job_size: int) -> int:
        """How many reserves of the connection may be answered at once, with jobs of the largest size; one at least."""
        return max(1, self._memory.bound // RESERVING // max_job_size)

    def has_room(self, size: int) -> bool:
        """Whether a command with a job of so many bytes may be executed; if not, the connection will go on later."""
        if not self._memory.is_full or self.used + size <= FAIR_SHARE:
            return True
        self._memory.waiting[self] = None
        return False

    def add(self, size: int) -> None:
        """Count bytes that were taken, or given back if the size is negative."""
        self.used += size
        self._memory.add(size)

    def add_command(self, size: int) -> None:
        """Count a command that is executed, with its reply at its largest; give it back when the reply is sent."""
        self._memory.executing += size
        self.add(size)

    def count_unread(self, written: int = 0) -> None:
        """Count what the system has not taken, after so many bytes that had been counted were written."""
        self._set_unread(self._transport.get_write_buffer_size(), written)

    def close(self) -> None:
        """Give back what the client has not read: the connection has ended."""
        self._memory.waiting.pop(self, None)
        self._set_unread(0, 0)

    def _set_unread(self, unread: int, written: int) -> None:
        if not unread:
            self._memory.unread.pop(self, None)
        elif self.unread_bytes:
            self._read += self.unread_bytes + written - unread
        else:
            self._memory.unread[self] = None
            self._began_at, self._read = asyncio.get_running_loop().time(), 0
        change = unread - self.unread_bytes - written
        self.unread_bytes = unread
        self.add(change)

    def is_slow(self, now: float) -> bool:
        """Whether the client has had its time, and has read little in it."""
        elapsed = now - self._began_at
        return elapsed >= PATIENCE and self._read < SLOW * elapsed
