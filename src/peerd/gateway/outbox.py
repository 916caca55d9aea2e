"""Sends what connections have been answered: when a batch has been delivered, else at the event loop's next turn."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Outbox:
    """The connections of one process that have replies to send.

    >>> async def send_two() -> list[str]:
    ...     sent: list[str] = []
    ...     outbox = Outbox()
    ...     outbox.add(lambda: sent.append("at once"))
    ...     outbox.flush()
    ...     outbox.add(lambda: sent.append("at the next turn"))
    ...     await asyncio.sleep(0)
    ...     return sent
    >>> asyncio.run(send_two())
    ['at once', 'at the next turn']
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._senders: list[Callable[[], None]] = []

    def add(self, send: Callable[[], None]) -> None:
        """Have a function called that sends the replies of a connection."""
        if not self._senders:
            self._loop.call_soon(self.flush)
        self._senders.append(send)

    def flush(self) -> None:
        """Call the functions so far."""
        senders, self._senders = self._senders, []
        for send in senders:
            send()
