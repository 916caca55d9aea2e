"""The stack of a running task: its calls and their frames, outermost first, without values of variables.

Values of local variables are left out on purpose: they may be secrets.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Final

import msgspec

from peerd.domain.units import format_size

MAX_FRAMES: Final = 200
"""Frames of all calls of a stack; of a deeper one the innermost are kept."""
MAX_CALLS: Final = 20
"""Threads, and asyncio tasks that are awaited, beside one another."""
MAX_FILE: Final = 300
MAX_FUNCTION: Final = 120
MAX_SOURCE: Final = 120
"""Characters of a file's name, a function's name and a source line: with these a stack has less than 128 KiB."""


class CallFrame(msgspec.Struct, frozen=True, kw_only=True):
    """A frame: where the code of a call is. ``source`` is its source line; empty where the file cannot be read."""

    file: str
    line: int
    function: str
    source: str = ""


class CallStack(msgspec.Struct, frozen=True, kw_only=True):
    """The frames of a thread or of an asyncio task, outermost first; ``name`` names it."""

    name: str
    frames: list[CallFrame]


class StackAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What a process answers: the stack of a task, and the process in which its handler runs."""

    pid: int
    slot: str
    since: datetime | None
    calls: list[CallStack]
    is_cut: bool = False


class ProcessUsage(msgspec.Struct, frozen=True, kw_only=True):
    """What a process uses: processors (1.0 is one of them all the time), bytes of memory (RSS), threads."""

    pid: int
    cpu: float
    memory: int
    threads: int

    @property
    def sentence(self) -> str:
        """For people.

        >>> ProcessUsage(pid=17, cpu=0.123, memory=81_000_000, threads=3).sentence
        'process 17: 12% cpu, 81 MB of memory, 3 threads'
        """
        threads = "1 thread" if self.threads == 1 else f"{self.threads:,} threads"
        return f"process {self.pid}: {self.cpu:.0%} cpu, {format_size(self.memory)} of memory, {threads}"


class TaskStack(msgspec.Struct, frozen=True, kw_only=True):
    """The stack of a running task.

    Attributes:
        task_id: the task's.
        node: which runs it.
        slot: of the worker process.
        since: when the attempt was claimed, by the database's clock.
        calls: of a coroutine its own frames, then those of the tasks that it awaits; of a thread or process its
            threads'. A blocked event loop comes last.
        is_cut: whether frames are left out.
        process: the process in which the handler's code runs; None when it has just ended.
    """

    task_id: int
    node: str
    slot: str
    since: datetime | None
    calls: list[CallStack]
    is_cut: bool
    process: ProcessUsage | None


def bounded(calls: Iterable[CallStack]) -> tuple[list[CallStack], bool]:
    """Calls within the limits of a stack, and whether frames were left out.

    >>> frame = CallFrame(file="a.py", line=1, function="f")
    >>> calls, is_cut = bounded([CallStack(name="a", frames=[frame] * 500), CallStack(name="b", frames=[frame])])
    >>> [len(call.frames) for call in calls], is_cut
    ([199, 1], True)
    """
    given = list(calls)
    kept = given[:MAX_CALLS]
    is_cut = len(given) > MAX_CALLS
    room = MAX_FRAMES
    found: list[tuple[CallStack, CallStack]] = []
    for call in sorted(kept, key=lambda call: len(call.frames)):
        share = room // (len(kept) - len(found))
        frames = call.frames[-share:]
        is_cut = is_cut or len(frames) < len(call.frames)
        room -= len(frames)
        found.append((call, CallStack(name=call.name, frames=frames)))
    by_call = {id(call): cut for call, cut in found}
    return [by_call[id(call)] for call in kept], is_cut
