"""Requests that a process answers even if user code blocks its event loop.

The control thread sees every message first. One of an action that is registered here does not go to the event loop: a
thread of its own answers it, so that the control thread never waits.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any, Final

from peerd.runtime.messages.addressing import MAX_MESSAGE_BYTES
from peerd.runtime.messages.frames import FrameError, encode
from peerd.runtime.process.uncaught_exceptions import describe_exception

MAX_THREADS: Final = 8
"""Requests that are answered at the same time."""

UrgentHandler = Callable[[Any], object]
"""Gets the data of a request; returns the answer, which is JSON, or raises. Called in a thread."""


class UrgentRequests:
    """The handlers, and the threads that call them.

    Args:
        send: sends a frame to the master; from any thread.
    """

    def __init__(self, send: Callable[[Mapping[str, object]], None]) -> None:
        self.handlers: dict[str, UrgentHandler] = {}
        """By the action."""
        self._send = send
        self._free = threading.Semaphore(MAX_THREADS)

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
            self._reply(message, {"error": f"{MAX_THREADS} such requests are being answered there"})
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
