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
from peerd.runtime.concurrency.background_tasks import Background
from peerd.runtime.messages.message_handlers import Handler, Listeners, Message
from peerd.runtime.observability.events import Events, MessageDropped, MessageHandlerFailed
from peerd.runtime.process.uncaught_exceptions import traceback_of, words

AT_ONCE: Final = 100
"""Handlers that run at the same time."""

WAITING: Final = 10_000
"""Messages that wait for them. The master lets no sender have more than a part of it waiting."""

TELL_AT: Final = 64
"""Messages taken, of which the master is told at once."""

TELL_AFTER: Final = 0.02
"""Seconds after which it is told of fewer."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a handler ended: with a value, or with an error in words."""

    value: Any = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Incoming:
    """A message, and how it is answered if it is a request."""

    message: Message
    answer: Callable[[Outcome], None] | None = None


class Inbox:
    """What has come and is not handled yet. Used on the event loop only.

    Args:
        listeners: who is to hear of it.
        background: where handlers run on.
        events: what goes wrong in them.
        taken: is told how many messages have been taken since it was told last.
    """

    def __init__(
        self, listeners: Listeners, background: Background, events: Events, taken: Callable[[int], None]
    ) -> None:
        self._listeners = listeners
        self._background = background
        self._events = events
        self._tell = taken
        self._waiting: deque[Incoming] = deque()
        self._running = 0
        self._taken = 0
        self._telling: asyncio.TimerHandle | None = None

    @property
    def is_idle(self) -> bool:
        """Whether nothing waits and no handler runs."""
        return not (self._waiting or self._running)

    def put(self, incoming: Incoming) -> None:
        """Take one in, and handle it as soon as its turn comes."""
        if len(self._waiting) >= WAITING:
            self._drop(incoming)
            return
        self._waiting.append(incoming)
        self._go_on()

    def _drop(self, incoming: Incoming) -> None:
        message = incoming.message
        self._count_taken()
        self._events.emit(MessageDropped(action=message.action, sender=str(message.sender), waiting=len(self._waiting)))
        if incoming.answer:
            incoming.answer(Outcome(error=f"{len(self._waiting)} messages wait there to be handled"))

    def _go_on(self) -> None:
        while self._waiting and self._running < AT_ONCE:
            incoming = self._waiting.popleft()
            self._count_taken()
            self._handle(incoming)

    def _handle(self, incoming: Incoming) -> None:
        message, answer = incoming.message, incoming.answer
        ends = [self._call(handler, message) for handler in self._listeners.take(message.action)]
        if answer is None:
            return
        if not ends:
            answer(Outcome(error=f"nobody listens to {message.action!r} there"))
            return
        known = [end for end in ends if isinstance(end, Outcome)]
        if len(known) == len(ends):
            answer(_together(known))
        else:
            settling = asyncio.ensure_future(_settled(ends))
            settling.add_done_callback(lambda done: None if done.cancelled() else answer(_together(done.result())))

    def _call(self, handler: Handler, message: Message) -> Outcome | asyncio.Future[Outcome]:
        try:
            value = handler(message)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever it raises, the process goes on
            return self._failed(message, words(error), traceback_of(error))
        return self._go_on_with(value, message) if inspect.isawaitable(value) else Outcome(value)

    def _go_on_with(self, value: Awaitable[Any], message: Message) -> asyncio.Future[Outcome]:
        ended: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self._running += 1
        work = self._follow(value, message, ended)
        try:
            self._background.run(work, f"the handler of the message {message.action!r}")
        except ProcessStopping as error:
            self._running -= 1
            if asyncio.iscoroutine(value):
                value.close()
            ended.set_result(self._failed(message, str(error)))
        return ended

    async def _follow(self, value: Awaitable[Any], message: Message, ended: asyncio.Future[Outcome]) -> None:
        outcome = Outcome(error="its process stopped before it had ended")
        try:
            outcome = Outcome(await value)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever it raises, the process goes on
            outcome = self._failed(message, words(error), traceback_of(error))
        finally:
            self._running -= 1
            ended.set_result(outcome)
            self._go_on()

    def _failed(self, message: Message, error: str, trace: str | None = None) -> Outcome:
        sender = str(message.sender)
        self._events.emit(MessageHandlerFailed(action=message.action, sender=sender, error=error, traceback=trace))
        return Outcome(error=error)

    # ---------------------------------------------------------------- what the master is told

    def _count_taken(self) -> None:
        self._taken += 1
        if self._taken >= TELL_AT:
            self._tell_taken()
        elif self._telling is None:
            self._telling = asyncio.get_running_loop().call_later(TELL_AFTER, self._tell_taken)

    def _tell_taken(self) -> None:
        if self._telling is not None:
            self._telling.cancel()
            self._telling = None
        self._tell(self._taken)
        self._taken = 0


async def _settled(ends: list[Outcome | asyncio.Future[Outcome]]) -> list[Outcome]:
    return [end if isinstance(end, Outcome) else await end for end in ends]


def _together(outcomes: list[Outcome]) -> Outcome:
    """What several handlers answer: the first error, else the first value that says something."""
    failed = next((one for one in outcomes if one.error is not None), None)
    return failed or next((one for one in outcomes if one.value is not None), Outcome())
