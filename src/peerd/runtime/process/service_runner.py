"""The life of a service in its process: start, run, and when asked to, quiet and stop."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine
from typing import Any, TypeVar

from peerd.runtime.process import exit_codes
from peerd.runtime.process.control_thread import StopAsked
from peerd.runtime.process.link import Link
from peerd.runtime.process.service import Service
from peerd.runtime.process.uncaught_exceptions import show, show_failed_boot, taint_on_uncaught, words

T = TypeVar("T")


class UnexpectedExit(RuntimeError):
    """The service raised SystemExit, which nobody has asked for: leaving for good is returning from `run`."""

    def __init__(self, step: str, error: SystemExit) -> None:
        super().__init__(f"{step}() raised {words(error)}")


async def live(service: Service, link: Link) -> int:
    """Lead a service through its life; return the exit status that its process leaves with."""
    status = await _Life(service, link).lead()
    link.leave(status)  # before the loop waits for its threads, which nobody can cancel
    return status


class _Life:
    def __init__(self, service: Service, link: Link) -> None:
        self._service = service
        self._link = link
        self._loop = asyncio.get_running_loop()
        self._messages: asyncio.Queue[dict[str, object]] = asyncio.Queue()
        self._grace = link.grace
        self._asked = asyncio.Event()

    async def lead(self) -> int:
        taint_on_uncaught(self._loop, self._link)
        self._link.attach(self._from_the_watch, self._loop)
        try:
            started = await self._start()
        except Exception as error:  # noqa: BLE001 - whatever it is, it is why the boot failed
            show_failed_boot(error)
            self._link.send({"type": "boot-failed", "error": words(error)})
            return exit_codes.BOOT_FAILED
        return await self._run() if started else self._link.status

    async def _start(self) -> bool:
        starting = asyncio.ensure_future(_without_exit("start", self._service.start(self._link)))
        if not await self._done_before_asked(starting):
            await _cancel(starting)
            return False
        self._link.become_ready(starting.result())
        return True

    async def _run(self) -> int:
        running = asyncio.ensure_future(_without_exit("run", self._service.run()))
        receiving = asyncio.ensure_future(self._receive())
        try:
            if not await self._done_before_asked(running):
                await self._stop()
            if running.done():
                running.result()
        except Exception as error:  # noqa: BLE001 - a crash of the service is what the master must hear of
            show(error)
            self._link.send({"type": "crashed", "error": words(error)})
            return exit_codes.CRASHED
        finally:
            await _cancel(running)
            await _cancel(receiving)
        return self._link.status

    async def _stop(self) -> None:
        """Stop, and when somebody hurries meanwhile, stop again with what is left."""
        while True:
            self._asked.clear()
            stopping = asyncio.ensure_future(self._quiet_and_stop(self._grace))
            if await self._done_before_asked(stopping):
                return stopping.result()
            await _cancel(stopping)

    async def _quiet_and_stop(self, grace: float) -> None:
        await _without_exit("quiet", self._service.quiet())
        await _without_exit("stop", self._service.stop(grace))

    async def _receive(self) -> None:
        while True:
            message = await self._messages.get()
            try:
                await _without_exit("receive", self._service.receive(message))
            except Exception as error:  # noqa: BLE001 - the service's state is uncertain now, so it is tainted
                show(error)
                self._link.tainted(f"could not take the message {message.get('type')!r}: {words(error)}")

    async def _done_before_asked(self, doing: asyncio.Future[Any]) -> bool:
        asked = asyncio.ensure_future(self._asked.wait())
        try:
            await asyncio.wait((doing, asked), return_when=asyncio.FIRST_COMPLETED)
        finally:
            asked.cancel()
        return doing.done()

    def _from_the_watch(self, event: StopAsked | dict[str, object]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has been closed: there is nothing left to tell
            self._loop.call_soon_threadsafe(self._take, event)

    def _take(self, event: StopAsked | dict[str, object]) -> None:
        if isinstance(event, StopAsked):
            self._grace = event.grace
            self._asked.set()
        else:
            self._messages.put_nowait(event)


async def _without_exit(step: str, doing: Coroutine[Any, Any, T]) -> T:
    """Make SystemExit an exception like others; raised out of a task it would end the whole loop."""
    try:
        return await doing
    except SystemExit as error:
        raise UnexpectedExit(step, error) from error


async def _cancel(doing: asyncio.Future[Any]) -> None:
    """Cancel what is not done, wait until it is; how it ended does not matter any more."""
    if not doing.done():
        doing.cancel()
        await asyncio.wait((doing,))
    if not doing.cancelled():
        doing.exception()
