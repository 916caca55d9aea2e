"""The messages that have come to a process, and the handlers that run for them.

They are handled in the order of their coming. A plain handler is called at once, on the event loop; an `async` one goes
on as a task of its own, so many at the same time, and what comes then waits. The master is told how many have been
taken: it hands over no more than a process takes.
"""

from __future__ import annotations

import asyncio
import inspect
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final

from peerd.domain.errors import ProcessStopping
from peerd.runtime.concurrency.background_tasks import BackgroundTasks
from peerd.runtime.messages.message_handlers import Message, MessageHandler, MessageHandlers
from peerd.runtime.observability.events import EventBus, MessageDropped, MessageHandlerFailed
from peerd.runtime.process.uncaught_exceptions import describe_exception, format_traceback

MAX_CONCURRENT_HANDLERS: Final = 100
"""Handlers that run at the same time."""

MAX_QUEUED_MESSAGES: Final = 10_000
"""Messages that wait for them. The master lets no sender have more than a part of it waiting."""

ACKNOWLEDGE_AT: Final = 64
"""Messages taken, of which the master is told at once."""

ACKNOWLEDGE_AFTER: Final = 0.02
"""Seconds after which it is told of fewer."""


@dataclass(frozen=True, slots=True)
class HandlerResult:
    """How a handler ended: with a value, or with an error in words."""

    value: Any = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class IncomingMessage:
    """A message, and how it is answered if it is a request."""

    message: Message
    answer: Callable[[HandlerResult], None] | None = None


class Inbox:
    """What has come and is not handled yet. Used on the event loop only.

    Args:
        listeners: who is to hear of it.
        background: where handlers run on.
        events: what goes wrong in them.
        taken: is told how many messages have been taken since it was told last.
    """

    def __init__(
        self, listeners: MessageHandlers, background: BackgroundTasks, events: EventBus, taken: Callable[[int], None]
    ) -> None:
        self._listeners = listeners
        self._background = background
        self._events = events
        self._acknowledge = taken
        self._waiting: deque[IncomingMessage] = deque()
        self._running = 0
        self._taken = 0
        self._acknowledge_timer: asyncio.TimerHandle | None = None

    @property
    def is_idle(self) -> bool:
        """Whether nothing waits and no handler runs."""
        return not (self._waiting or self._running)

    def put(self, incoming: IncomingMessage) -> None:
        """Take one in, and handle it as soon as its turn comes."""
        if len(self._waiting) >= MAX_QUEUED_MESSAGES:
            self._reject(incoming)
            return
        self._waiting.append(incoming)
        self._start_next()

    def _reject(self, incoming: IncomingMessage) -> None:
        message = incoming.message
        self._count_taken()
        self._events.emit(MessageDropped(action=message.action, sender=str(message.sender), waiting=len(self._waiting)))
        if incoming.answer:
            incoming.answer(HandlerResult(error=f"{len(self._waiting)} messages wait there to be handled"))

    def _start_next(self) -> None:
        while self._waiting and self._running < MAX_CONCURRENT_HANDLERS:
            incoming = self._waiting.popleft()
            self._count_taken()
            self._handle(incoming)

    def _handle(self, incoming: IncomingMessage) -> None:
        message, answer = incoming.message, incoming.answer
        results = [self._call(handler, message) for handler in self._listeners.take(message.action)]
        if answer is None:
            return
        if not results:
            answer(HandlerResult(error=f"nobody listens to {message.action!r} there"))
            return
        known = [result for result in results if isinstance(result, HandlerResult)]
        if len(known) == len(results):
            answer(_together(known))
        else:
            combining = asyncio.ensure_future(_settled(results))
            combining.add_done_callback(lambda done: None if done.cancelled() else answer(_together(done.result())))

    def _call(self, handler: MessageHandler, message: Message) -> HandlerResult | asyncio.Future[HandlerResult]:
        try:
            value = handler(message)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever it raises, the process goes on
            return self._failed(message, describe_exception(error), format_traceback(error))
        return self._start_async(value, message) if inspect.isawaitable(value) else HandlerResult(value)

    def _start_async(self, value: Awaitable[Any], message: Message) -> asyncio.Future[HandlerResult]:
        finished: asyncio.Future[HandlerResult] = asyncio.get_running_loop().create_future()
        self._running += 1
        work = self._run_async(value, message, finished)
        try:
            self._background.run(work, f"the handler of the message {message.action!r}")
        except ProcessStopping as error:
            self._running -= 1
            if asyncio.iscoroutine(value):
                value.close()
            finished.set_result(self._failed(message, str(error)))
        return finished

    async def _run_async(
        self, value: Awaitable[Any], message: Message, finished: asyncio.Future[HandlerResult]
    ) -> None:
        outcome = HandlerResult(error="its process stopped before it had ended")
        try:
            outcome = HandlerResult(await value)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever it raises, the process goes on
            outcome = self._failed(message, describe_exception(error), format_traceback(error))
        finally:
            self._running -= 1
            finished.set_result(outcome)
            self._start_next()

    def _failed(self, message: Message, error: str, trace: str | None = None) -> HandlerResult:
        sender = str(message.sender)
        self._events.emit(MessageHandlerFailed(action=message.action, sender=sender, error=error, traceback=trace))
        return HandlerResult(error=error)

    # ---------------------------------------------------------------- what the master is told

    def _count_taken(self) -> None:
        self._taken += 1
        if self._taken >= ACKNOWLEDGE_AT:
            self._acknowledge_taken()
        elif self._acknowledge_timer is None:
            self._acknowledge_timer = asyncio.get_running_loop().call_later(ACKNOWLEDGE_AFTER, self._acknowledge_taken)

    def _acknowledge_taken(self) -> None:
        if self._acknowledge_timer is not None:
            self._acknowledge_timer.cancel()
            self._acknowledge_timer = None
        self._acknowledge(self._taken)
        self._taken = 0


async def _settled(results: list[HandlerResult | asyncio.Future[HandlerResult]]) -> list[HandlerResult]:
    return [result if isinstance(result, HandlerResult) else await result for result in results]


def _together(outcomes: list[HandlerResult]) -> HandlerResult:
    """What several handlers answer: the first error, else the first value that says something."""
    failed = next((one for one in outcomes if one.error is not None), None)
    return failed or next((one for one in outcomes if one.value is not None), HandlerResult())
