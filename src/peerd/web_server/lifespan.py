"""The lifespan of an ASGI app: its startup before the first request and its shutdown after the last one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

from peerd.domain.errors import PeerdError
from peerd.runtime.process.uncaught_exceptions import describe_exception

RAISE_WITHIN: Final = 1.0
"""Seconds that an app has, after it has reported a failed startup, to raise the cause, which says more."""


class StartupFailed(PeerdError):
    """The app did not start."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(f"the app's startup failed: {reason}")


class Lifespan:
    """Runs the lifespan of an app, if the app supports it.

    An app that raises or returns before it receives the startup message has no lifespan, which is no failure. An app
    that raises after it has received the startup message has failed.

    Args:
        app: the ASGI app.
        state: `scope["state"]`, to which the app may add.
        on_lost: called with a message when the lifespan ends by an exception while the app is in use.
    """

    def __init__(self, app: Any, state: dict[str, Any], on_lost: Callable[[str], None]) -> None:
        self._app = app
        self._state = state
        self._on_lost = on_lost
        self._received_startup = False
        self._started = False
        self._failure: str | None = None
        self._answer = asyncio.Event()
        self._incoming: asyncio.Queue[dict[str, str]] = asyncio.Queue()
        self._task: asyncio.Task[None] | None = None
        self._ending = False

    async def startup(self) -> None:
        """Start the app.

        Raises:
            StartupFailed: the app reported or raised a failure.
        """
        self._task = asyncio.create_task(self._run(), name="lifespan")
        self._task.add_done_callback(self._on_end)
        self._incoming.put_nowait({"type": "lifespan.startup"})
        try:
            await self._wait_for_answer(self._task)
        except asyncio.CancelledError:
            await self.cancel()
            raise
        if self._failure is not None:
            await asyncio.wait((self._task,), timeout=RAISE_WITHIN)
            cause = self._exception()
            await self.cancel()
            described = "it says so" if cause is None else describe_exception(cause)
            raise StartupFailed(last_line(self._failure) or described) from cause
        if self._received_startup and (cause := self._exception()) is not None:
            raise StartupFailed(describe_exception(cause)) from cause
        self._started = not self._task.done()

    async def shutdown(self) -> str | None:
        """Shut the app down, if it has a lifespan; return the failure that it reported or raised.

        It may be called again after it was cancelled.
        """
        if not self._started or self._task is None:
            return None
        if not self._ending:
            self._ending = True
            self._answer.clear()
            self._incoming.put_nowait({"type": "lifespan.shutdown"})
        await self._wait_for_answer(self._task)
        if self._failure is not None:
            return last_line(self._failure) or "it says so"
        cause = self._exception()
        return None if cause is None else describe_exception(cause)

    async def cancel(self) -> None:
        """Cancel the lifespan if it still runs."""
        if self._task is not None and not self._task.done():
            self._ending = True
            self._task.cancel()
            await asyncio.wait((self._task,))

    async def _run(self) -> None:
        scope = {"type": "lifespan", "asgi": {"version": "3.0", "spec_version": "2.0"}, "state": self._state}
        try:
            await self._app(scope, self._receive, self._send)
        except SystemExit as error:  # raised out of a task it would end the whole loop
            raise RuntimeError(f"the lifespan raised {describe_exception(error)}") from error

    async def _receive(self) -> dict[str, str]:
        message = await self._incoming.get()
        self._received_startup = True
        return message

    async def _send(self, message: dict[str, Any]) -> None:
        match message["type"]:
            case "lifespan.startup.complete" | "lifespan.shutdown.complete":
                pass
            case "lifespan.startup.failed" | "lifespan.shutdown.failed":
                self._failure = str(message.get("message", ""))
            case other:
                raise RuntimeError(f"a lifespan sends startup or shutdown complete or failed, not {other!r}")
        self._answer.set()

    async def _wait_for_answer(self, task: asyncio.Task[None]) -> None:
        """Wait until the app has answered, or ended."""
        answer = asyncio.ensure_future(self._answer.wait())
        try:
            await asyncio.wait((answer, task), return_when=asyncio.FIRST_COMPLETED)
        finally:
            answer.cancel()

    def _exception(self) -> BaseException | None:
        task = self._task
        return task.exception() if task is not None and task.done() and not task.cancelled() else None

    def _on_end(self, _: asyncio.Task[None]) -> None:
        cause = self._exception()  # retrieved in any case: asyncio logs an exception that is never retrieved
        if self._started and not self._ending and cause is not None:
            self._on_lost(f"the app's lifespan ended: {describe_exception(cause)}")


def last_line(text: str) -> str:
    r"""The last line that is not blank; frameworks send whole tracebacks.

    >>> last_line("Traceback …\n  File …\nKeyError: 'a'\n")
    "KeyError: 'a'"
    """
    return (text.strip().splitlines() or [""])[-1].strip()
