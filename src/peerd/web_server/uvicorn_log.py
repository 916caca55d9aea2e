"""What uvicorn says in its log, as events."""

from __future__ import annotations

import logging

from peerd.runtime.observability import events
from peerd.runtime.observability.events import EventBus


class UvicornLogHandler(logging.Handler):
    """Emits uvicorn's warnings and errors as events. Exceptions of the app are left out: they are events already."""

    def __init__(self, events: EventBus) -> None:
        super().__init__(logging.WARNING)
        self._events = events

    def emit(self, record: logging.LogRecord) -> None:
        """Emit one."""
        if not record.exc_info:
            self._events.emit(events.HttpServerWarned(text=record.getMessage(), error=record.levelno >= logging.ERROR))
