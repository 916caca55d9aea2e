"""Ctrl-C and SIGTERM as a request to stop, in place of an exception."""

from __future__ import annotations

import signal
from contextlib import AbstractContextManager
from typing import Any, Self


class StopSignals(AbstractContextManager["StopSignals"]):
    """While it is entered, the first SIGINT or SIGTERM sets `requested`; each further one raises KeyboardInterrupt.

    >>> import os
    >>> with StopSignals() as signals:
    ...     os.kill(os.getpid(), signal.SIGTERM)
    ...     signals.requested
    True
    """

    def __init__(self) -> None:
        self.requested = False
        self._previous: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        for number in (signal.SIGINT, signal.SIGTERM):
            self._previous[number] = signal.signal(number, self._request)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _request(self, *_: object) -> None:
        if self.requested:
            raise KeyboardInterrupt
        self.requested = True
