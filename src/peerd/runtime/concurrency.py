"""Plain functions in daemon threads of their own, once or periodically; background tasks; and forks.

Functions of users do not run in a pool: a thread cannot be cancelled, and one that outlives its time-out must not
occupy a pool's slot.

The hooks of forks renew, in a forked process, the connections, threads and locks of its parent. Python copies them all,
but a connection of two processes mixes up their replies, a thread exists in the parent only, and a lock that another
thread held is never released. gunicorn with ``--preload``, Celery's prefork pool and `multiprocessing` fork after an
application was imported, and so perhaps after it has used its client.
"""

from __future__ import annotations

import asyncio
import contextvars
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from threading import Lock
from typing import Any, Final, Protocol, TypeVar
from weakref import WeakKeyDictionary

from peerd.domain.errors import ProcessStopping
from peerd.runtime.observability.events import BackgroundWorkCancelled, BackgroundWorkFailed, EventBus
from peerd.runtime.process.uncaught_exceptions import (
    describe_exception,
    exception_text,
    format_traceback,
    log_exception,
)

T = TypeVar("T")

# the thread that an asyncio task has started last, for `thread_started_by`
_started_by: WeakKeyDictionary[asyncio.Task[Any], threading.Thread] = WeakKeyDictionary()

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


def call_on_loop(loop: asyncio.AbstractEventLoop, function: Callable[..., object], *args: Any) -> None:
    """Call a function on an event loop, from any thread; not at all if the loop is closed."""
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(function, *args)


async def run_in_thread(function: Callable[..., T], *args: Any, name: str) -> T:
    """Run a function in a new daemon thread, and wait for its end even when cancelled.

    The cancellation is raised after the end, because until then the function's resources are in use.
    """
    return await wait_despite_cancellation(start_thread(function, *args, name=name))


async def run_in_thread_to_completion(function: Callable[..., T], *args: Any, name: str) -> T:
    """Call `run_in_thread`, but return or raise the function's result even when cancelled."""
    future = start_thread(function, *args, name=name)
    with suppress(asyncio.CancelledError):
        await wait_despite_cancellation(future)
    return future.result()


def start_thread(function: Callable[..., T], *args: Any, name: str) -> asyncio.Future[T]:
    """Run a function in a new daemon thread; return the future of its result."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()
    context = contextvars.copy_context()

    def settle(result: Any, error: BaseException | None) -> None:
        call_on_loop(loop, _resolve, future, result, error)

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


# ---------------------------------------------------------------- background tasks


CANCEL_TIMEOUT: Final = 1.0
"""Seconds that cancelled work has to end before the stop of the process continues."""

BackgroundWork = Coroutine[Any, Any, object]


class BackgroundTasks:
    """The background tasks of one process. Made on its event loop."""

    def __init__(self, events: EventBus) -> None:
        self._events = events
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False

    @property
    def count(self) -> int:
        """How many tasks run."""
        return len(self._tasks)

    def run(self, work: BackgroundWork, name: str | None = None) -> None:
        """See `ProcessContext.run_in_background`; `name` stands for the work in the log; by default its function's."""
        if not asyncio.iscoroutine(work):
            raise TypeError(f"give run_in_background a coroutine, as in run_in_background(refresh()), not {work!r}")
        work_name = name or str(getattr(work, "__qualname__", type(work).__name__))
        if self._closed:
            work.close()
            raise ProcessStopping(work_name)
        if running_loop() is self._loop:
            self._start(work, work_name)
        else:
            self._loop.call_soon_threadsafe(self._start, work, work_name)

    async def finish(self, grace: float) -> None:
        """Start no more work, let the running work end within `grace` seconds, and cancel the rest.

        It may be called again with a shorter grace.
        """
        self._closed = True
        if self._tasks:
            await asyncio.wait(set(self._tasks), timeout=grace)
        if left := set(self._tasks):
            self._events.emit(BackgroundWorkCancelled(names=tuple(sorted(task.get_name() for task in left))))
            for task in left:
                task.cancel()
            await asyncio.wait(left, timeout=CANCEL_TIMEOUT)

    def _start(self, work: BackgroundWork, name: str) -> None:
        if self._closed:  # a thread called `run` just before
            work.close()
            self._events.emit(BackgroundWorkFailed(name=name, error=str(ProcessStopping(name))))
            return
        task = self._loop.create_task(self._guarded(work, name), name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _guarded(self, work: BackgroundWork, name: str) -> None:
        try:
            await work
        except (Exception, SystemExit) as error:  # noqa: BLE001 - the user's code; it does not end the process
            failed = BackgroundWorkFailed(name=name, error=describe_exception(error), traceback=format_traceback(error))
            self._events.emit(failed, error)


def running_loop() -> asyncio.AbstractEventLoop | None:
    """The event loop that runs in this thread, if any."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


# ---------------------------------------------------------------- forks


class Forkable(Protocol):
    """An object with resources that must not be shared with a forked process."""

    def before_fork(self) -> None:
        """In the parent: close what must not be open in another process."""

    def reset_after_fork(self) -> None:
        """In the child: replace the parent's resources, without closing them or waiting for them."""


_registered: Final[dict[int, weakref.ref[Forkable]]] = {}


def register_fork_hooks(instance: Forkable) -> None:
    """Call the instance's methods at each fork, as long as it lives."""
    number = id(instance)
    _registered[number] = weakref.ref(instance, lambda _: _registered.pop(number, None))


class ThreadPool:
    """A few threads that functions are called in; a process that was forked creates its own.

    Args:
        threads: functions that can run at the same time.
        name: begins the names of the threads.
    """

    def __init__(self, threads: int, name: str) -> None:
        self._threads = threads
        self._name = name
        self.reset_after_fork()
        register_fork_hooks(self)

    async def call(self, function: Callable[[], T]) -> T:
        """Call a function in a thread, and await its result."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, function)

    def before_fork(self) -> None:
        """Called in a process that forks: its threads stay in it."""

    def reset_after_fork(self) -> None:
        """Create threads; called in a process that was forked, too."""
        self._pool = ThreadPoolExecutor(self._threads, thread_name_prefix=self._name)

    def close(self) -> None:
        """Let the threads end after what they run now."""
        self._pool.shutdown(wait=False, cancel_futures=True)


class ForkSafeLock:
    """A lock that a forked process finds free, also where another thread of its parent held it.

    >>> lock = ForkSafeLock()
    >>> with lock:
    ...     pass
    """

    def __init__(self) -> None:
        self.reset_after_fork()
        register_fork_hooks(self)

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def before_fork(self) -> None:
        """A fork does not wait for the lock."""

    def reset_after_fork(self) -> None:
        """Create the lock anew, since the thread that may have held it has stayed in the parent."""
        self._lock = Lock()


def _live_instances() -> list[Forkable]:
    return [instance for reference in list(_registered.values()) if (instance := reference()) is not None]


def _before_fork() -> None:
    for instance in _live_instances():
        instance.before_fork()


def _after_fork_in_child() -> None:
    for instance in _live_instances():
        instance.reset_after_fork()


os.register_at_fork(before=_before_fork, after_in_child=_after_fork_in_child)
