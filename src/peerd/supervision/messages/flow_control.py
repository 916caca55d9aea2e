"""How much each process has been handed and has not taken yet: so much from each sender, and no more.

A process that does not take its messages, and one that floods another, cost the master no memory beyond this, and the
other senders nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable

from peerd.runtime.messages.addressing import MAX_IN_FLIGHT, MAX_IN_FLIGHT_BYTES


class FlowControl:
    """A ledger. Receivers and senders are whatever can be a key.

    >>> inboxes = FlowControl(max_messages=1)
    >>> inboxes.record_sent("video-1", sender="agent", size=10)
    >>> inboxes.has_room("video-1", sender="agent", size=10), inboxes.has_room("video-1", sender="web-1", size=10)
    (False, True)
    >>> inboxes.acknowledge("video-1", 1)
    >>> inboxes.has_room("video-1", sender="agent", size=10)
    True
    """

    def __init__(self, max_messages: int = MAX_IN_FLIGHT, max_bytes: int = MAX_IN_FLIGHT_BYTES) -> None:
        self._max_messages = max_messages
        self._max_bytes = max_bytes
        self._inboxes: dict[Hashable, deque[tuple[Hashable, int]]] = {}
        self._shares: dict[Hashable, dict[Hashable, tuple[int, int]]] = {}

    def has_room(self, receiver: Hashable, sender: Hashable, size: int) -> bool:
        """Whether a message of so many bytes may be handed to the receiver."""
        count, held = self._shares.get(receiver, {}).get(sender, (0, 0))
        return count < self._max_messages and held + size <= self._max_bytes

    def record_sent(self, receiver: Hashable, sender: Hashable, size: int) -> None:
        """Note that it was handed over."""
        self._inboxes.setdefault(receiver, deque()).append((sender, size))
        self._add(receiver, sender, 1, size)

    def acknowledge(self, receiver: Hashable, count: int) -> None:
        """Note that the receiver has taken so many, in the order in which it got them."""
        inbox = self._inboxes.get(receiver, deque())
        for _ in range(min(max(count, 0), len(inbox))):
            sender, size = inbox.popleft()
            self._add(receiver, sender, -1, -size)

    def remove(self, receiver: Hashable) -> None:
        """Forget a receiver that has died."""
        self._inboxes.pop(receiver, None)
        self._shares.pop(receiver, None)

    def _add(self, receiver: Hashable, sender: Hashable, count: int, size: int) -> None:
        shares = self._shares.setdefault(receiver, {})
        had, held = shares.get(sender, (0, 0))
        if had + count:
            shares[sender] = (had + count, held + size)
        else:
            shares.pop(sender, None)
