"""The message handlers of a process, by action. Thread-safe."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from peerd.runtime.messages.addressing import Peer


@dataclass(frozen=True, slots=True)
class Message:
    """A message as its handler gets it: its subject, its content, and its sender."""

    action: str
    data: Any
    sender: Peer


MessageHandler = Callable[[Message], Any]
"""Plain, or `async def`. Its return value answers a request."""


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
            self._keep(action, [(other, once) for other, once in self._handlers.get(action, []) if other != handler])

    def take(self, action: str) -> list[MessageHandler]:
        """The handlers of a message that has come; those for one message are removed."""
        with self._lock:
            found = self._handlers.get(action, [])
            self._keep(action, [(handler, once) for handler, once in found if not once])
            return [handler for handler, _ in found]

    def _keep(self, action: str, handlers: list[tuple[MessageHandler, bool]]) -> None:
        if handlers:
            self._handlers[action] = handlers
        else:
            self._handlers.pop(action, None)
