"""The stacks of a handler's own process, which it writes into a pipe when it gets a signal.

`faulthandler` writes them: its signal handler is C code, so it answers while the main thread computes, waits, or is in
a library that holds the interpreter. It needs no thread in the handler's process, which may fork.
"""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import os
import re
import select
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final
from weakref import WeakKeyDictionary

from peerd.domain.task_stack import CallStack
from peerd.runtime.observability.call_stacks import make_frame, without_our_code

STACK_SIGNAL: Final = signal.SIGRTMAX - 3
"""A signal that nothing else uses: libraries take real-time signals from the lower end."""
READY: Final = b"ready\n"
"""Written once the signal is handled; before, it would end the process."""
FIRST_WITHIN: Final = 2.0
"""Seconds until the first bytes."""
QUIET_FOR: Final = 0.2
"""Seconds without further bytes after which the stacks are complete: nothing marks their end."""
MAX_BYTES: Final = 256 * 1024

_THREAD: Final = re.compile(r"^(Current thread|Thread) 0x([0-9a-f]+)")
_FRAME: Final = re.compile(r'^  File "(.*)", line (\d+) in (.*)$')

_remote_stacks: WeakKeyDictionary[asyncio.Task[object], RemoteStacks] = WeakKeyDictionary()
"""By the asyncio task of the attempt."""


class HandlerProcessSilent(LookupError):
    """The stacks of a handler's process cannot be read; the text says why."""


def open_stack_pipe() -> tuple[int, int]:
    """A pipe: the reading end, and the writing end. Neither blocks: an unread pipe must not stop a handler."""
    return os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)


def write_stacks_on_signal(descriptor: int) -> None:
    """Write the stacks of all threads to a descriptor at each signal; called in the handler's process."""
    os.set_inheritable(descriptor, False)
    faulthandler.register(STACK_SIGNAL, file=descriptor, all_threads=True, chain=False)
    os.write(descriptor, READY)


def remote_stacks_of(task: asyncio.Task[object]) -> RemoteStacks | None:
    """The process in which an asyncio task runs a handler now; from any thread."""
    return _remote_stacks.get(task)


class RemoteStacks:
    """Reads the stacks of one process. `read` is called from other threads than `registered`.

    Args:
        pid: of the process, which is not reaped before `registered` has ended.
        readable: the reading end of its pipe, which is closed then.
    """

    def __init__(self, pid: int, readable: int) -> None:
        self.pid = pid
        self._readable: int | None = readable
        self._lock = threading.Lock()
        self._is_ready = False

    @contextmanager
    def registered(self) -> Iterator[None]:
        """Let others find it by the asyncio task that runs now."""
        task = asyncio.current_task()
        assert task is not None
        _remote_stacks[task] = self
        try:
            yield
        finally:
            _remote_stacks.pop(task, None)
            self.close()

    def close(self) -> None:
        """Close the pipe; a `read` that is going on ends first."""
        with self._lock:
            if self._readable is not None:
                os.close(self._readable)
            self._readable = None

    def read(self) -> list[CallStack]:
        """The stacks of its threads, the handler's first.

        Raises:
            HandlerProcessSilent: it starts, ends, or does not answer.
        """
        with self._lock:
            if self._readable is None:
                raise HandlerProcessSilent("its process has just ended")
            earlier = self._receive(self._readable, first_within=0.0)
            self._is_ready = self._is_ready or READY in earlier
            if not self._is_ready:
                raise HandlerProcessSilent(f"its process ({self.pid}) has just been started; ask again")
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, STACK_SIGNAL)
            text = self._receive(self._readable, first_within=FIRST_WITHIN)
        stacks = parse_stacks(text.decode(errors="replace"))
        if not stacks:
            raise HandlerProcessSilent(f"its process ({self.pid}) has not answered: it is stopped, or has just ended")
        return stacks

    def _receive(self, readable: int, first_within: float) -> bytes:
        received = bytearray()
        poll = select.poll()
        poll.register(readable, select.POLLIN)
        while len(received) < MAX_BYTES and poll.poll((QUIET_FOR if received else first_within) * 1000):
            part = os.read(readable, 65_536)
            if not part:
                break
            received += part
        return bytes(received)


def parse_stacks(text: str) -> list[CallStack]:
    r"""The stacks that `faulthandler` has written, with the handler's thread first.

    >>> [stack] = parse_stacks('Current thread 0x7f (most recent call first):\n  File "b.py", line 7 in inner\n'
    ...                        '  File "a.py", line 3 in outer\n')
    >>> [(frame.file, frame.line, frame.function) for frame in stack.frames]
    [('a.py', 3, 'outer'), ('b.py', 7, 'inner')]
    """
    stacks: list[CallStack] = []
    for line in text.splitlines():
        if found := _THREAD.match(line):
            stacks.append(CallStack(name=f"thread 0x{found[2].lstrip('0')}", frames=[]))
        elif stacks and (found := _FRAME.match(line)):
            stacks[-1].frames.insert(0, make_frame(found[1], int(found[2]), found[3]))
    ordered = sorted(stacks, key=lambda stack: not _runs_handler(stack))
    return [
        CallStack(name="process" if _runs_handler(stack) else stack.name, frames=without_our_code(stack.frames))
        for stack in ordered
    ]


def _runs_handler(stack: CallStack) -> bool:
    """Whether it is the main thread: another one of that module sends log lines."""
    return any(
        frame.file.endswith("peerd/work/handler_process.py") and frame.function == "main" for frame in stack.frames
    )
