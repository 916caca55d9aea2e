"""Plain functions in threads of their own.

Not a pool: a thread cannot be cancelled, and one that outlives its task's patience must not keep a place that another
task needs.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, Final, TypeVar
from weakref import WeakKeyDictionary

from peerd.runtime.process.uncaught_exceptions import exception_text

T = TypeVar("T")

_started_by: WeakKeyDictionary[asyncio.Task[Any], threading.Thread] = WeakKeyDictionary()
"""The thread that an asyncio task has started last, for `current_stack`."""

SWITCH_INTERVAL: Final = 0.0005
"""Seconds after which a thread that computes lets another one go on; Python's own are 0.005."""


def shorten_switch_interval() -> None:
    """Let the threads of this process wait for one another's computing for a tenth of the usual time.

    For a process that works with SQLite: a thread that has the file's lock must not wait for the event loop to come to
    its end, with all other writers behind it. Measured in drains: 40,500 → 43,500 tasks a second.
    """
    sys.setswitchinterval(SWITCH_INTERVAL)


class SystemExitInThread(RuntimeError):
    """A function in a thread raised SystemExit or its like.

    Args:
        error: what it raised.
    """

    def __init__(self, error: BaseException) -> None:
        self.raised = error
        super().__init__(f"{type(error).__name__} in a thread: {exception_text(error)}")


async def run_in_thread(function: Callable[..., T], *args: Any, name: str) -> T:
    """Run a function in a new daemon thread, and wait for it even if the waiting is cancelled.

    Cancelling is raised when the function has ended: until then whatever it holds is in use.

    Args:
        function: what to run.
        args: its arguments.
        name: of the thread.
    """
    return await wait_despite_cancellation(start_thread(function, *args, name=name))


async def run_in_thread_to_completion(function: Callable[..., T], *args: Any, name: str) -> T:
    """As `run_in_thread`, but what the function returns or raises counts although the waiting was cancelled."""
    future = start_thread(function, *args, name=name)
    with contextlib.suppress(asyncio.CancelledError):
        await wait_despite_cancellation(future)
    return future.result()


def start_thread(function: Callable[..., T], *args: Any, name: str) -> asyncio.Future[T]:
    """Run a function in a new daemon thread; the future is how it ends."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()
    context = contextvars.copy_context()

    def run() -> None:
        try:
            result = context.run(function, *args)
        except BaseException as error:  # noqa: BLE001 - whatever it is, whoever waits shall get it
            _resolve(loop, future, error=error)
        else:
            _resolve(loop, future, result=result)

    thread = threading.Thread(target=run, name=f"peerd-{name}", daemon=True)
    if (task := asyncio.current_task()) is not None:
        _started_by[task] = thread
    thread.start()
    return future


def current_stack(task: asyncio.Task[Any]) -> str:
    """Where the code of an asyncio task is, as a traceback shows it: in its thread, or on the event loop."""
    thread = _started_by.get(task)
    if thread is not None and thread.is_alive():
        frame = sys._current_frames().get(thread.ident or 0)  # noqa: SLF001 - there is no public way to it
        return "" if frame is None else "".join(traceback.format_stack(frame))
    return "".join(line for frame in _frames(task.get_coro()) for line in traceback.format_stack(frame, limit=1))


def _frames(coroutine: object) -> Iterator[FrameType]:
    """The frames of a coroutine, and of each that it awaits."""
    while (frame := getattr(coroutine, "cr_frame", None)) is not None:
        yield frame
        coroutine = getattr(coroutine, "cr_await", None)


async def wait_despite_cancellation(future: asyncio.Future[T]) -> T:
    """Wait for a future although the waiting is cancelled; raise the cancellation afterwards."""
    cancelled: asyncio.CancelledError | None = None
    while not future.done():
        try:
            await asyncio.wait([future])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        future.exception()  # seen
        raise cancelled
    return future.result()


def _resolve(
    loop: asyncio.AbstractEventLoop,
    future: asyncio.Future[Any],
    *,
    result: Any = None,
    error: BaseException | None = None,
) -> None:
    def resolve() -> None:
        if future.cancelled():
            return
        if error is None:
            future.set_result(result)
        elif isinstance(error, StopIteration | asyncio.CancelledError | SystemExit | KeyboardInterrupt):
            future.set_exception(SystemExitInThread(error))
        else:
            future.set_exception(error)

    with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
        loop.call_soon_threadsafe(resolve)
