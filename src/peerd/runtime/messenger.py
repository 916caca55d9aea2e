"""Messages between the processes of a node: each process has a messenger, and the master routes them.

    agent ─┐                       ┌─ agent
    video-1 ─ send ─→ master ─→ handlers of video-2
    web-1 ─┘                       └─ …

A message is delivered at most once; the result of a send method can be awaited for its delivery. Messages that are sent
before the node is ready wait until it is. No message survives its process; use a task for what must not be lost.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Generator, Mapping
from concurrent.futures import Future
from itertools import count
from typing import Any, Final, Generic, Protocol, TypeVar

from peerd.domain.errors import InvalidMessage, MessageTooLarge, MessengerFull, NoReply, RequestFailed, Undeliverable
from peerd.runtime import frames
from peerd.runtime.concurrency import BackgroundTasks
from peerd.runtime.frames import FrameError, FrameTooLarge, InvalidTarget, Peer, Target, encode
from peerd.runtime.inbox import HandlerResult, Inbox, Message, MessageHandler, MessageHandlers
from peerd.runtime.observability.events import EventBus, MessageHandlerFailed, MessageNotDelivered
from peerd.runtime.process.uncaught_exceptions import describe_exception, format_traceback

RESERVED_PREFIX: Final = "peerd."
"""How the actions of peerd's own messages begin, which are not sent to other nodes."""
BROADCAST_ACTION: Final = "peerd.broadcast"
"""The message to the agent with a message for all nodes."""
MAX_BROADCAST_BYTES: Final = 1000
"""Bytes of a message to all nodes, as JSON: it is one datagram."""


class FrameSender(Protocol):
    """Sends frames to the master, as `Link` does."""

    def send(self, message: Mapping[str, object]) -> None:
        """Send a frame; never waits."""


class Messenger:
    """Sends messages to other processes of the node, and calls handlers for received ones.

    The send methods, `on`, `once` and `off` may be called from any thread. Handlers are called on the event loop, in
    the order of the messages: an `async` one runs as a task of its own, a plain one must not block. An exception in a
    handler is logged, and answers a request; it does not affect the process.

    Args:
        frame_sender: to the master.
        background: runs `async` handlers.
        events: of failures.
    """

    def __init__(self, frame_sender: FrameSender, background: BackgroundTasks, events: EventBus) -> None:
        self._frame_sender = frame_sender
        self._events = events
        self._in_flight = InFlightMessages()
        self._handlers = MessageHandlers()
        self._inbox = Inbox(
            self._handlers, background, events, lambda count: frame_sender.send({"type": "taken", "count": count})
        )
        self._peers: tuple[Peer, ...] = ()
        self._change_callbacks: list[Callable[[], object]] = []
        self._frame_handlers: dict[str, Callable[[Mapping[str, Any]], None]] = {
            "message": self._on_message,
            "delivery": self._on_delivery,
            "reply": self._on_reply,
            "processes": self._on_processes,
        }

    def broadcast(self, action: str, data: object = None, *, cluster: bool = False) -> Delivery:
        """Send to all workers and the agent, the sender included.

        Args:
            action: the subject, which selects the handlers.
            data: JSON, at most 256 KiB; for all nodes, at most 1000 bytes, action included.
            cluster: whether to send to the processes of all nodes, through their agents. Such a message may be lost
                without an error; the returned delivery is that to the agent of this node.

        Raises:
            InvalidMessage: the data is not JSON, or too large (`MessageTooLarge`).
            MessengerFull: too many messages of this process are not delivered yet.
        """
        if not cluster:
            return self.send(Target.everyone(), action, data)
        _target(action, Target.everyone())
        if action.startswith(RESERVED_PREFIX):
            raise InvalidMessage(action, f"actions that begin with {RESERVED_PREFIX!r} are peerd's own")
        size = _size_of(action, {"action": action, "data": data})
        if size > MAX_BROADCAST_BYTES:
            raise MessageTooLarge(action, size, MAX_BROADCAST_BYTES)
        return self.send(Target.agent(), BROADCAST_ACTION, {"action": action, "data": data})

    def send_to_workers(self, action: str, data: object = None, kind: str | None = None) -> Delivery:
        """Send to all workers, or to those of one kind (`video` for `[workers.video]`), the sender included."""
        return self.send(Target.workers(kind), action, data)

    def send_to_agent(self, action: str, data: object = None) -> Delivery:
        """Send to the agent. While there is none, the message waits for it."""
        return self.send(Target.agent(), action, data)

    def send_random(self, action: str, data: object = None, kind: str | None = None) -> Delivery:
        """Send to one worker, or one of a kind, at random."""
        return self.send(Target.random(kind), action, data)

    def send_to(self, pid: int, action: str, data: object = None) -> Delivery:
        """Send to one process, by its process id."""
        return self.send(Target.process(pid), action, data)

    def send(self, target: Target | str | int, action: str, data: object = None) -> Delivery:
        """Send to a target; the other send methods are short forms of this one."""
        delivery = Delivery(action, _target(action, target))
        self._dispatch(delivery, data, {"request": False})
        return delivery

    async def request(
        self,
        target: Target | str | int,
        action: str,
        data: object = None,
        timeout: float = frames.DEFAULT_REPLY_TIMEOUT,  # noqa: ASYNC109 - the other end gets it too
    ) -> Any:
        """Send a request to one process, and return the result of its handler.

        Args:
            target: `"agent"`, a process id, or a `Target` that is one process.
            action: the subject.
            data: as of a message.
            timeout: seconds to wait for the reply, at most a day.

        Raises:
            Undeliverable: the process does not exist.
            NoReply: the time is over, or the process has died.
            RequestFailed: the handler raised, there is none, or its answer cannot be sent.
            InvalidMessage: the request cannot be sent.
            MessengerFull: too many messages of this process are not delivered yet.
        """
        if not 0 < timeout <= frames.MAX_REPLY_TIMEOUT:
            most = f"{frames.MAX_REPLY_TIMEOUT:.0f} s"
            raise InvalidMessage(action, f"its timeout is {timeout} s; allowed is up to {most}")
        reply = PendingReply(action, _target(action, target))
        number = self._dispatch(reply, data, {"request": True, "timeout": timeout})
        time = asyncio.timeout(timeout)
        try:
            async with time:
                return await reply
        except TimeoutError:
            if not time.expired():
                raise
            raise NoReply(action, str(reply.target), f"its {timeout:g} s are over") from None
        finally:
            self._in_flight.close(number)

    def _dispatch(self, pending: Delivery | PendingReply, data: object, more: Mapping[str, object]) -> int:
        content = {"to": pending.target.to_json(), "action": pending.action, "data": data}
        number = self._in_flight.open(pending, _size_of(pending.action, content))
        self._frame_sender.send({"type": "message", "id": number, **content, **more})
        return number

    def on(self, action: str, handler: MessageHandler) -> None:
        """Call a handler, plain or `async`, with each `Message` of an action. Its return value answers a request."""
        self._handlers.add(action, handler)

    def once(self, action: str, handler: MessageHandler) -> None:
        """Call a handler for the next message of an action only."""
        self._handlers.add(action, handler, once=True)

    def off(self, action: str, handler: MessageHandler) -> None:
        """Remove a handler."""
        self._handlers.remove(action, handler)

    def on_change(self, callback: Callable[[], object]) -> None:
        """Call a plain function after each change of `workers` or `agent`."""
        self._change_callbacks.append(callback)

    @property
    def workers(self) -> tuple[Peer, ...]:
        """The workers that are ready, as of the last frame about them."""
        return tuple(peer for peer in self._peers if peer.role in frames.WORKER_ROLES)

    @property
    def gateways(self) -> tuple[Peer, ...]:
        """The gateway processes that are ready, and those that still serve their clients after a reload."""
        return tuple(peer for peer in self._peers if peer.role == frames.GATEWAY_ROLE)

    @property
    def agent(self) -> Peer | None:
        """The agent, or None while none is ready."""
        return next((peer for peer in self._peers if peer.role == "agent"), None)

    @property
    def is_idle(self) -> bool:
        """Whether no message waits for its handler, and no handler runs."""
        return self._inbox.is_idle

    def receive(self, frame: Mapping[str, Any]) -> bool:
        """Handle a frame of the master; return whether it is for the messenger. On the event loop."""
        handler = self._frame_handlers.get(str(frame.get("type")))
        if handler is None:
            return False
        handler(frame)
        return True

    def close(self) -> None:
        """Fail all pending deliveries and replies."""
        for pending in self._in_flight.close_all():
            self._fail(pending, Undeliverable(pending.action, str(pending.target), "this process stops"))

    def _on_message(self, frame: Mapping[str, Any]) -> None:
        message = Message(frame["action"], frame["data"], Peer(**frame["from"]))
        answer = (lambda result: self._answer(message, frame["id"], result)) if frame["request"] else None
        self._inbox.put(message, answer)

    def _answer(self, message: Message, number: int, outcome: HandlerResult) -> None:
        reply: dict[str, object] = {"type": "reply", "to": {"pid": message.sender.pid}, "id": number}
        error = outcome.error
        if error is None:
            try:
                _size_of(message.action, {"data": outcome.value})
            except InvalidMessage as unsendable:
                error = f"its answer: {unsendable}"
                self._events.emit(MessageHandlerFailed(action=message.action, sender=str(message.sender), error=error))
        self._frame_sender.send(reply | ({"data": outcome.value} if error is None else {"error": error[:2000]}))

    def _on_delivery(self, frame: Mapping[str, Any]) -> None:
        pending = self._in_flight.close(frame["id"])
        if not isinstance(pending, Delivery):
            return
        if frame["error"] is None:
            pending.future.set_result(frame["delivered"])
        else:
            self._fail(pending, Undeliverable(pending.action, str(pending.target), frame["error"], frame["delivered"]))

    def _on_reply(self, frame: Mapping[str, Any]) -> None:
        pending = self._in_flight.close(frame["id"])
        if not isinstance(pending, PendingReply):
            return  # it is too late
        target = str(pending.target)
        match frame:
            case {"error": str() as error, "reason": "died" | "late"}:
                pending.future.set_exception(NoReply(pending.action, target, error))
            case {"error": str() as error, "reason": "undeliverable"}:
                pending.future.set_exception(Undeliverable(pending.action, target, error))
            case {"error": error}:
                pending.future.set_exception(RequestFailed(pending.action, target, str(error)))
            case _:
                pending.future.set_result(frame["data"])

    def _on_processes(self, frame: Mapping[str, Any]) -> None:
        self._peers = tuple(Peer(**peer) for peer in frame["processes"])
        for callback in list(self._change_callbacks):
            try:
                callback()
            except Exception as error:  # noqa: BLE001 - the user's code
                text, trace = describe_exception(error), format_traceback(error)
                sender = "the master"
                failed = MessageHandlerFailed(action="on_change", sender=sender, error=text, traceback=trace)
                self._events.emit(failed, error)

    def _fail(self, pending: Delivery | PendingReply, error: Undeliverable) -> None:
        pending.future.set_exception(error)
        if not pending.is_awaited:
            self._events.emit(MessageNotDelivered(action=pending.action, error=str(error)))


def _target(action: object, given: Target | str | int) -> Target:
    if not isinstance(action, str) or not 0 < len(action) <= frames.MAX_ACTION_LENGTH:
        raise InvalidMessage(action, f"its action must be a text of 1 to {frames.MAX_ACTION_LENGTH} characters")
    try:
        return Target.of(given)
    except InvalidTarget as error:
        raise InvalidMessage(action, str(error)) from error


def _size_of(action: str, content: Mapping[str, object]) -> int:
    try:
        size = len(encode(content))
    except FrameTooLarge as error:
        size = error.size
    except FrameError as error:
        raise InvalidMessage(action, str(error)) from error
    if size > frames.MAX_MESSAGE_BYTES:
        raise MessageTooLarge(action, size, frames.MAX_MESSAGE_BYTES)
    return size


T = TypeVar("T")


class PendingResult(Generic[T]):
    """A result that comes later: it can be awaited in a coroutine, waited for in a thread, or ignored."""

    def __init__(self, action: str, target: Target) -> None:
        self.action = action
        self.target = target
        self.is_awaited = False
        """Whether the caller waits, and so gets an error."""
        self.future: Future[T] = Future()
        self.future.set_running_or_notify_cancel()  # so that a cancelled waiter does not cancel it for the others

    def __await__(self) -> Generator[Any, None, T]:
        self.is_awaited = True
        return asyncio.wrap_future(self.future).__await__()

    def wait(self, timeout: float | None = None) -> T:
        """Wait in a thread (on the event loop it would never come); raises TimeoutError after `timeout` seconds."""
        self.is_awaited = True
        return self.future.result(timeout)


class Delivery(PendingResult[int]):
    """The delivery of a message; awaited, the number of processes that got it, or `Undeliverable` if not all did.

    A failed delivery that is not awaited is logged.
    """


class PendingReply(PendingResult[Any]):
    """The reply to a request."""


class InFlightMessages:
    """The messages whose delivery or reply is not known yet, up to a limit of number and bytes. Thread-safe.

    The limit bounds the memory of sender and master, if a process sends faster than messages are delivered.
    """

    def __init__(self) -> None:
        self._numbers = count(1)
        self._pending: dict[int, tuple[Delivery | PendingReply, int]] = {}
        self._bytes = 0
        self._lock = threading.Lock()

    def open(self, pending: Delivery | PendingReply, size: int) -> int:
        """Add a message; return its number. Raises MessengerFull."""
        with self._lock:
            if len(self._pending) >= frames.MAX_IN_FLIGHT or self._bytes + size > frames.MAX_IN_FLIGHT_BYTES:
                raise MessengerFull(pending.action, len(self._pending), self._bytes)
            number = next(self._numbers)
            self._pending[number] = (pending, size)
            self._bytes += size
            return number

    def close(self, number: object) -> Delivery | PendingReply | None:
        """Remove a message, if it is there."""
        with self._lock:
            pending, size = self._pending.pop(number, (None, 0)) if isinstance(number, int) else (None, 0)
            self._bytes -= size
            return pending

    def close_all(self) -> list[Delivery | PendingReply]:
        """Remove all messages."""
        with self._lock:
            removed = [pending for pending, _ in self._pending.values()]
            self._pending.clear()
            self._bytes = 0
            return removed
