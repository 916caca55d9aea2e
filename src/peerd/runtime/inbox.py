"""The received messages of a process, and the calls of their handlers.

Messages are handled in the order of arrival. A plain handler is called at once, on the event loop; an `async` one runs
as a task of its own, and further messages wait while `MAX_CONCURRENT_HANDLERS` run. The process acknowledges the
messages that it has taken to the master, which sends no more than a process takes.

Urgent requests do not wait for the event loop: a thread of its own answers each.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from peerd.domain.errors import ProcessStopping
from peerd.runtime.concurrency import BackgroundTasks
from peerd.runtime.frames import MAX_MESSAGE_BYTES, FrameError, Peer, encode
from peerd.runtime.observability.events import EventBus, MessageDropped, MessageHandlerFailed
from peerd.runtime.process.uncaught_exceptions import describe_exception, format_traceback

MAX_CONCURRENT_HANDLERS: Final = 100
MAX_QUEUED_MESSAGES: Final = 10_000
"""Messages that wait for a handler. The master allows each sender a part of them."""
ACKNOWLEDGE_AT: Final = 64
"""Taken messages that are acknowledged at once."""
ACKNOWLEDGE_AFTER: Final = 0.02
"""Seconds after which fewer are acknowledged."""


@dataclass(frozen=True, slots=True)
class Message:
    """A message as its handler gets it: its subject, its content, and its sender."""

    action: str
    data: Any
    sender: Peer


MessageHandler = Callable[[Message], Any]
"""Plain, or `async def`. Its return value answers a request."""


MAX_URGENT_REQUESTS: Final = 8
"""Requests that are answered at the same time."""
UrgentHandler = Callable[[Any], object]
"""Gets the data of a request; returns the answer, which is JSON, or raises. Called in a thread."""


class MessageHandlers:
    """The handlers of each action, in the order in which they were added.

    >>> handlers = MessageHandlers()
    >>> handlers.add("refresh", print, once=True)
    >>> handlers.take("refresh"), handlers.take("refresh")
    ([<built-in function print>], [])
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._handlers: dict[str, list[tuple[MessageHandler, bool]]] = {}

    def add(self, action: str, handler: MessageHandler, *, once: bool = False) -> None:
        """Call a handler for each message of an action, or only for the next one. Raises TypeError."""
        if not callable(handler):
            raise TypeError(f"the handler of messages {action!r} must be a function, not {handler!r}")
        with self._lock:
            self._handlers.setdefault(action, []).append((handler, once))

    def remove(self, action: str, handler: MessageHandler) -> None:
        """Remove a handler, if it is there."""
        with self._lock:
            others = [(other, once) for other, once in self._handlers.pop(action, []) if other != handler]
            if others:
                self._handlers[action] = others

    def take(self, action: str) -> list[MessageHandler]:
        """The handlers of a message that has come; those for one message are removed."""
        with self._lock:
            found = self._handlers.get(action, [])
            if any(once for _, once in found):
                self._handlers[action] = [(handler, once) for handler, once in found if not once]
            return [handler for handler, _ in found]


@dataclass(frozen=True, slots=True)
class HandlerResult:
    """The result of a handler: a value, or the text of an error."""

    value: Any = None
    error: str | None = None


Answer = Callable[[HandlerResult], None]
"""Answers a request."""


class Inbox:
    """The messages that are not handled yet. Used on the event loop only.

    `acknowledge` is called with the number of messages taken since its last call.
    """

    def __init__(
        self,
        handlers: MessageHandlers,
        background: BackgroundTasks,
        events: EventBus,
        acknowledge: Callable[[int], None],
    ) -> None:
        self._handlers = handlers
        self._background = background
        self._events = events
        self._acknowledge = acknowledge
        self._waiting: deque[tuple[Message, Answer | None]] = deque()
        self._running = 0
        self._taken = 0
        self._acknowledge_timer: asyncio.TimerHandle | None = None

    @property
    def is_idle(self) -> bool:
        """Whether no message waits and no handler runs."""
        return not (self._waiting or self._running)

    def put(self, message: Message, answer: Answer | None = None) -> None:
        """Add a message; drop it if too many wait."""
        waiting = len(self._waiting)
        if waiting < MAX_QUEUED_MESSAGES:
            self._waiting.append((message, answer))
            self._start_next()
            return
        self._count_taken()
        self._events.emit(MessageDropped(action=message.action, sender=str(message.sender), waiting=waiting))
        if answer:
            answer(HandlerResult(error=f"{waiting} messages wait there to be handled"))

    def _start_next(self) -> None:
        while self._waiting and self._running < MAX_CONCURRENT_HANDLERS:
            message, answer = self._waiting.popleft()
            self._count_taken()
            self._handle(message, answer)

    def _handle(self, message: Message, answer: Answer | None) -> None:
        results = [self._call(handler, message) for handler in self._handlers.take(message.action)]
        if answer is None:
            return
        if not results:
            answer(HandlerResult(error=f"no handler is registered for {message.action!r} there"))
            return
        known = [result for result in results if isinstance(result, HandlerResult)]
        if len(known) == len(results):
            answer(_combined(known))
        else:
            combining = asyncio.ensure_future(_settled(results))
            combining.add_done_callback(lambda done: None if done.cancelled() else answer(_combined(done.result())))

    def _call(self, handler: MessageHandler, message: Message) -> HandlerResult | asyncio.Future[HandlerResult]:
        try:
            value = handler(message)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - the user's code
            return self._failed(message, describe_exception(error), error)
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
        except (Exception, SystemExit) as error:  # noqa: BLE001 - the user's code
            outcome = self._failed(message, describe_exception(error), error)
        finally:
            self._running -= 1
            finished.set_result(outcome)
            self._start_next()

    def _failed(self, message: Message, error: str, raised: BaseException | None = None) -> HandlerResult:
        sender, trace = str(message.sender), None if raised is None else format_traceback(raised)
        failed = MessageHandlerFailed(action=message.action, sender=sender, error=error, traceback=trace)
        self._events.emit(failed, raised)
        return HandlerResult(error=error)

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


def _combined(results: list[HandlerResult]) -> HandlerResult:
    """The answer of several handlers: the first error, else the first value that is not None."""
    failed = next((result for result in results if result.error is not None), None)
    return failed or next((result for result in results if result.value is not None), HandlerResult())


# ---------------------------------------------------------------- urgent requests


class UrgentRequests:
    """The handlers, and the threads that call them.

    Args:
        send: sends a frame to the master; from any thread.
    """

    def __init__(self, send: Callable[[Mapping[str, object]], None]) -> None:
        self.handlers: dict[str, UrgentHandler] = {}
        """By the action."""
        self._send = send
        self._free = threading.Semaphore(MAX_URGENT_REQUESTS)

    def receive(self, message: Mapping[str, Any]) -> bool:
        """Answer a message in a thread; return whether it is an urgent request. Never waits."""
        if message.get("type") != "message" or not message.get("request"):
            return False
        answer = self.handlers.get(str(message.get("action")))
        if answer is None:
            return False
        self._send({"type": "taken", "count": 1})
        if self._free.acquire(blocking=False):
            threading.Thread(target=self._answer, args=(message, answer), name="peerd-urgent", daemon=True).start()
        else:
            self._reply(message, {"error": f"{MAX_URGENT_REQUESTS} such requests are being answered there"})
        return True

    def _answer(self, message: Mapping[str, Any], answer: UrgentHandler) -> None:
        try:
            content: Mapping[str, object] = {"data": answer(message.get("data"))}
            size = len(encode(content))
            if size > MAX_MESSAGE_BYTES:
                content = {"error": f"its answer has {size} bytes, and {MAX_MESSAGE_BYTES} are allowed"}
        except (LookupError, FrameError) as refused:
            content = {"error": str(refused.args[0]) if refused.args else describe_exception(refused)}
        except Exception as error:  # noqa: BLE001 - the requester learns of it
            content = {"error": describe_exception(error)}
        finally:
            self._free.release()
        self._reply(message, content)

    def _reply(self, message: Mapping[str, Any], content: Mapping[str, object]) -> None:
        self._send({"type": "reply", "to": {"pid": message["from"]["pid"]}, "id": message["id"], **content})
