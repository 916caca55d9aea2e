"""Replies in the order of their commands, in whatever order the answers come."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable


class Place:
    """The place of one reply."""

    __slots__ = ("reply",)

    def __init__(self) -> None:
        self.reply: bytes | None = None


class RepliesInOrder:
    """The replies of one connection.

    >>> sent = []
    >>> replies = RepliesInOrder(sent.append)
    >>> first, second = replies.reserve_place(), replies.reserve_place()
    >>> replies.fill(second, b"2"); sent
    []
    >>> replies.fill(first, b"1"); sent
    [b'1', b'2']
    """

    __slots__ = ("_places", "_send")

    def __init__(self, send: Callable[[bytes], None]) -> None:
        self._send = send
        self._places: deque[Place] = deque()

    def __len__(self) -> int:
        """How many commands have no reply yet, or wait for the reply of an earlier one."""
        return len(self._places)

    def reserve_place(self) -> Place:
        """The place of the next reply."""
        place = Place()
        self._places.append(place)
        return place

    def fill(self, place: Place, reply: bytes) -> None:
        """Give the reply of a place; it is sent when all before it are."""
        place.reply = reply
        places = self._places
        while places and (ready := places[0].reply) is not None:
            places.popleft()
            self._send(ready)

    def add(self, reply: bytes) -> None:
        """Give the next reply."""
        if self._places:
            self.reserve_place().reply = reply
        else:
            self._send(reply)
