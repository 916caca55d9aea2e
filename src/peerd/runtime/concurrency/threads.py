"""Plain functions in daemon threads of their own, once or periodically.

They do not use a pool: a thread cannot be cancelled, and one that outlives its time-out must not occupy a pool's slot.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, Final, TypeVar
from weakref import WeakKeyDictionary

from peerd.runtime.process.uncaught_exceptions import exception_text, log_exception

T = TypeVar("T")

_started_by: WeakKeyDictionary[asyncio.Task[Any], threading.Thread] = WeakKeyDictionary()
"""The thread that an asyncio task has started last, for `current_stack`."""

SWITCH_INTERVAL: Final = 0.0005
"""Seconds after which a computing thread yields to another one; Python's own are 0.005."""


def shorten_switch_interval() -> None:
    """Set `SWITCH_INTERVAL`, for a process that works with SQLite.

    A thread that holds the file's lock must not wait long for the event loop to yield, because all other writers wait
    for that thread. Measured in drains: 40,500 → 43,500 tasks a second.
    """
    sys.setswitchinterval(SWITCH_INTERVAL)


class SystemExitInThread(RuntimeError):
    """A function in a thread raised SystemExit or its like, which is `raised`."""

    def __init__(self, error: BaseException) -> None:
        self.raised = error
        super().__init__(f"{type(error).__name__} in a thread: {exception_text(error)}")


async def run_in_thread(function: Callable[..., T], *args: Any, name: str) -> T:
    """Run a function in a new daemon thread, and wait for its end even when cancelled.

    The cancellation is raised after the end, because until then the function's resources are in use.
    """
    return await wait_despite_cancellation(start_thread(function, *args, name=name))


async def run_in_thread_to_completion(function: Callable[..., T], *args: Any, name: str) -> T:
    """As `run_in_thread`, but return or raise the function's result even when cancelled."""
    future = start_thread(function, *args, name=name)
    with contextlib.suppress(asyncio.CancelledError):
        await wait_despite_cancellation(future)
    return future.result()


def start_thread(function: Callable[..., T], *args: Any, name: str) -> asyncio.Future[T]:
    """Run a function in a new daemon thread; return the future of its result."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()
    context = contextvars.copy_context()

    def settle(result: Any, error: BaseException | None) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(_resolve, future, result, error)

    def run() -> None:
        try:
            result = context.run(function, *args)
        except (StopIteration, asyncio.CancelledError, SystemExit, KeyboardInterrupt) as error:
            settle(None, SystemExitInThread(error))
        except BaseException as error:  # noqa: BLE001 - raised again by the future
            settle(None, error)
        else:
            settle(result, None)
        close_connections()

    thread = threading.Thread(target=run, name=f"peerd-{name}", daemon=True)
    if (task := asyncio.current_task()) is not None:
        _started_by[task] = thread
    thread.start()
    return future


def _resolve(future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if future.cancelled():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)


def thread_started_by(task: asyncio.Task[Any]) -> threading.Thread | None:
    """The thread in which an asyncio task runs a plain function now."""
    thread = _started_by.get(task)
    return thread if thread is not None and thread.is_alive() else None


def current_stack(task: asyncio.Task[Any]) -> str:
    """The stack of an asyncio task, as in a traceback: of its thread, or of its coroutines on the event loop."""
    thread = thread_started_by(task)
    if thread is not None:
        frame = sys._current_frames().get(thread.ident or 0)  # noqa: SLF001 - it has no public name
        return "" if frame is None else "".join(traceback.format_stack(frame))
    return "".join(line for frame in _frames(task.get_coro()) for line in traceback.format_stack(frame, limit=1))


def _frames(coroutine: object) -> Iterator[FrameType]:
    """The frames of a coroutine, and of each that it awaits."""
    while (frame := getattr(coroutine, "cr_frame", None)) is not None:
        yield frame
        coroutine = getattr(coroutine, "cr_await", None)


async def wait_despite_cancellation(future: asyncio.Future[T]) -> T:
    """Wait for a future although the caller is cancelled; raise the cancellation afterwards."""
    cancelled: asyncio.CancelledError | None = None
    while not future.done():
        try:
            await asyncio.wait([future])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        future.exception()  # mark it as retrieved
        raise cancelled
    return future.result()


PeriodicStep = Callable[[float], float]
"""Gets the monotonic clock, in seconds; returns the seconds until its next call. If it raises, it is called again."""
PAUSE_AFTER_FAILURE: Final = 5.0
"""Seconds until the next call of a step that has raised."""


class PeriodicThread:
    """Calls a step in a daemon thread of its own.

    >>> calls = []
    >>> thread = PeriodicThread(lambda now: calls.append(now) or 0.001)
    >>> thread.start()
    >>> while len(calls) < 3:
    ...     pass
    >>> thread.stop()
    >>> thread.join(10.0)
    """

    def __init__(self, step: PeriodicStep, name: str = "peerd-ticker") -> None:
        self._step = step
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run_loop, name=name, daemon=True)

    def start(self) -> None:
        """Start, with a first call at once."""
        self._thread.start()

    def stop(self) -> None:
        """Make no more calls; a running one is finished."""
        self._stopping.set()

    def join(self, seconds: float) -> None:
        """Wait for the end after `stop`, at most for this time."""
        if self._thread.is_alive():
            self._thread.join(seconds)

    def _run_loop(self) -> None:
        pause = 0.0
        while not self._stopping.wait(pause):
            try:
                pause = self._step(time.monotonic())
            except Exception as error:  # noqa: BLE001 - a thread that ends unseen is worse than any failure of a step
                log_exception(error)
                pause = PAUSE_AFTER_FAILURE


@contextmanager
def own_thread() -> Iterator[None]:
    """Let what the block gives to `sync_to_async` run in a thread of its own, whose connections are closed at the end.

    `sync_to_async`, and with it the async methods of Django's ORM, run in one thread of a process, unless there is a
    context that has another one; Django makes such a context for each request, and closes old connections there. In a
    process of peerd the one thread would keep its connection for months. When the server closes that, every later query
    of it fails.

    Nothing is done in a process that has not loaded asgiref.
    """
    if (asgiref := sys.modules.get("asgiref.sync")) is None:
        yield
        return
    context, sync_to_async = asgiref.ThreadSensitiveContext(), asgiref.SyncToAsync
    token = sync_to_async.thread_sensitive_context.set(context)
    try:
        yield
    finally:
        sync_to_async.thread_sensitive_context.reset(token)
        executor = sync_to_async.context_to_thread_executor.pop(context, None)
        if executor is not None:  # the thread may still be busy, with what was cancelled
            executor.submit(close_connections)
            executor.shutdown(wait=False)


def close_connections() -> None:
    """Close Django's connections of this thread, which ends: they would stay open until they are collected."""
    if (database := sys.modules.get("django.db")) is not None:
        with suppress(Exception):  # the server has closed it, or the settings have no database
            database.connections.close_all()
