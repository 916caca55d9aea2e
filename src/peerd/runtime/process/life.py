"""The life of a supervised process, as its master leads it: start, run, and stop on request."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Mapping
from functools import partial
from typing import Any, Protocol

from peerd.runtime.concurrency import call_on_loop
from peerd.runtime.process import exit_codes
from peerd.runtime.process.control_thread import StopRequested
from peerd.runtime.process.link import Link
from peerd.runtime.process.uncaught_exceptions import (
    describe_exception,
    guard_against_exit,
    log_boot_failure,
    log_error,
    log_exception,
)


class SupervisedProcess(Protocol):
    """What one child process does. All methods run on its event loop; each object is used once.

    The order is start → run, with `receive` for each message in the order of sending, → stop. `run` continues during
    `stop`, and is cancelled after it.
    """

    async def start(self, link: Link) -> Mapping[str, object]:
        """Become ready; return the process's identity for the agent, such as `{"process_id": 17}`.

        An exception is a failed boot (exit status 3); start must then undo its work. If the node stops meanwhile, the
        call is cancelled, and no other method is called.
        """

    async def run(self) -> None:
        """Do the work. Returning ends the process for good with status 0; raising is a crash, status 70.

        No other method is called after it. (An agent that ends is replaced nevertheless.)
        """

    async def receive(self, message: Mapping[str, object]) -> None:
        """Handle a message of the master, one at a time: `{"type": "ready"}` once the whole node is ready, and others.

        The agent gets `{"type": "death", "id": n, …}` for each process that has died, until it answers on the link with
        `{"type": "death-acknowledged", "id": n}`. An exception taints the process.
        """

    async def stop(self, grace: float) -> None:
        """Take no new work, finish what runs within `grace` seconds, then give the rest back, and return.

        Releasing may take a few seconds more, then the process is killed. After a second stop request the call is
        cancelled and made again with grace 0, so it must be possible to call it twice.
        """


async def run_until_end(process: SupervisedProcess, link: Link) -> int:
    """Lead a process from start to stop; return its exit status."""
    status = await _Life(process, link).run()
    link.leave(status)  # before the loop waits for its threads, which cannot be cancelled
    return status


class _Life:
    def __init__(self, process: SupervisedProcess, link: Link) -> None:
        self._process = process
        self._link = link
        self._loop = asyncio.get_running_loop()
        self._messages: asyncio.Queue[dict[str, object]] = asyncio.Queue()
        self._grace = link.grace
        self._stop_requested = asyncio.Event()

    async def run(self) -> int:
        taint_on_uncaught(self._loop, self._link)
        self._link.attach(partial(call_on_loop, self._loop, self._handle_event), self._loop)
        try:
            started = await self._start()
        except Exception as error:  # noqa: BLE001 - any exception is a failed boot
            log_boot_failure(error)
            self._link.send({"type": "boot-failed", "error": describe_exception(error)})
            return exit_codes.BOOT_FAILED
        return await self._run() if started else self._link.status

    async def _start(self) -> bool:
        starting = asyncio.ensure_future(guard_against_exit(self._process.start(self._link), "start()"))
        if not await self._finished_before_stop(starting):
            await _cancel(starting)
            return False
        self._link.become_ready(starting.result())
        return True

    async def _run(self) -> int:
        running = asyncio.ensure_future(guard_against_exit(self._process.run(), "run()"))
        receiving = asyncio.ensure_future(self._receive())
        try:
            if not await self._finished_before_stop(running):
                await self._stop()
            if running.done():
                running.result()
        except Exception as error:  # noqa: BLE001 - any exception is a crash, which is reported to the master
            log_exception(error)
            self._link.send({"type": "crashed", "error": describe_exception(error)})
            return exit_codes.CRASHED
        finally:
            await _cancel(running)
            await _cancel(receiving)
        return self._link.status

    async def _stop(self) -> None:
        """Stop; after another request meanwhile, stop again with its grace."""
        while True:
            self._stop_requested.clear()
            stopping = asyncio.ensure_future(guard_against_exit(self._process.stop(self._grace), "stop()"))
            if await self._finished_before_stop(stopping):
                return stopping.result()
            await _cancel(stopping)

    async def _receive(self) -> None:
        while True:
            message = await self._messages.get()
            try:
                await guard_against_exit(self._process.receive(message), "receive()")
            except Exception as error:  # noqa: BLE001 - the state of the process is uncertain after any exception
                log_exception(error)
                self._link.tainted(f"could not take the message {message.get('type')!r}: {describe_exception(error)}")

    async def _finished_before_stop(self, awaitable: asyncio.Future[Any]) -> bool:
        stop_requested = asyncio.ensure_future(self._stop_requested.wait())
        try:
            await asyncio.wait((awaitable, stop_requested), return_when=asyncio.FIRST_COMPLETED)
        finally:
            stop_requested.cancel()
        return awaitable.done()

    def _handle_event(self, event: StopRequested | dict[str, object]) -> None:
        if isinstance(event, StopRequested):
            self._grace = event.grace
            self._stop_requested.set()
        else:
            self._messages.put_nowait(event)


async def _cancel(awaitable: asyncio.Future[Any]) -> None:
    """Cancel a future that is not done, wait for its end, and ignore its exception."""
    if not awaitable.done():
        awaitable.cancel()
        await asyncio.wait((awaitable,))
    if not awaitable.cancelled():
        awaitable.exception()


def taint_on_uncaught(loop: asyncio.AbstractEventLoop, link: Link) -> None:
    """Taint the process by uncaught exceptions of tasks and callbacks, of threads, and of finalizers.

    An exception of the main coroutine ends the process. One inside a task's handler is the failure of that task, and
    does not come here.
    """

    def taint(place: str, error: BaseException | None, kind: type[BaseException], source: str) -> None:
        log_error(place, error)
        link.tainted(f"{place}: {describe_exception(error) if error is not None else kind.__name__}")
        if error is not None:
            link.on_uncaught(source, error)

    def of_loop(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        message, error = str(context.get("message")), context.get("exception")
        if isinstance(error, BaseException):
            taint(message, error, type(error), message)
        else:
            more = [f"{name}={value!r}" for name, value in context.items() if name != "message"]
            log_error(" ".join([message, *more]))

    def of_thread(failed: threading.ExceptHookArgs) -> None:
        if failed.exc_type is not SystemExit:
            source = f"thread {failed.thread.name if failed.thread else '?'}"
            taint(f"uncaught in {source}", failed.exc_value, failed.exc_type, source)

    def of_finalizer(failed: sys.UnraisableHookArgs) -> None:
        name = getattr(failed.object, "__qualname__", type(failed.object).__name__)
        taint(f"uncaught in the finalizer {name}", failed.exc_value, failed.exc_type, "a finalizer")

    loop.set_exception_handler(of_loop)
    threading.excepthook = of_thread
    sys.unraisablehook = of_finalizer
