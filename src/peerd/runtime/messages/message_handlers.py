"""Who wants to hear of which message. Thread-safe."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from peerd.runtime.messages.addressing import Peer


@dataclass(frozen=True, slots=True)
class Message:
    """A message as its handler gets it: what it is about, what it carries, and who has sent it."""

    action: str
    data: Any
    sender: Peer


MessageHandler = Callable[[Message], Any]
"""Plain, or `async def`. What it returns answers a request."""


@dataclass(frozen=True, slots=True)
class _RegisteredHandler:
    handler: MessageHandler
    once: bool


class MessageHandlers:
    """The handlers of messages, by action, in the order in which they were added.

    >>> listeners = MessageHandlers()
    >>> listeners.add("refresh", print, once=True)
    >>> listeners.take("refresh"), listeners.take("refresh")
    ([<built-in function print>], [])
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._listeners: dict[str, tuple[_RegisteredHandler, ...]] = {}

    def add(self, action: str, handler: MessageHandler, *, once: bool = False) -> None:
        """Let a handler hear each message of an action, or only the next one.

        Raises:
            TypeError: it cannot be called.
        """
        if not callable(handler):
            raise TypeError(f"the handler of messages {action!r} must be a function, not {handler!r}")
        with self._lock:
            self._listeners[action] = (*self._listeners.get(action, ()), _RegisteredHandler(handler, once))

    def remove(self, action: str, handler: MessageHandler) -> None:
        """Let it hear them no more; one that was not there is no error."""
        with self._lock:
            self._keep(action, [one for one in self._listeners.get(action, ()) if one.handler != handler])

    def take(self, action: str) -> list[MessageHandler]:
        """Return who is to hear the next message of an action."""
        with self._lock:
            found = self._listeners.get(action, ())
            if any(one.once for one in found):
                self._keep(action, [one for one in found if not one.once])
            return [one.handler for one in found]

    def _keep(self, action: str, listeners: list[_RegisteredHandler]) -> None:
        if listeners:
            self._listeners[action] = tuple(listeners)
        else:
            self._listeners.pop(action, None)
