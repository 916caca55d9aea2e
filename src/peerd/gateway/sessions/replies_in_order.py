"""Replies in the order of their commands, in whatever order the answers come."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from peerd.gateway.reply_memory import ReplyAccount

MAX_UNANSWERED: Final = 1_000
"""Commands of a connection that may be executed at once."""


class Place:
    """The place of one reply, and the bytes that are counted for it until it is sent."""

    __slots__ = ("reply", "size")

    def __init__(self, size: int) -> None:
        self.size = size
        self.reply: bytes | None = None


class RepliesInOrder:
    """The replies of one connection.

    Args:
        send: called with each reply.
        account: of the connection; it counts what is sent itself.

    >>> from unittest.mock import Mock
    >>> sent = []
    >>> replies = RepliesInOrder(sent.append, Mock())
    >>> first, second = replies.reserve_place(0), replies.reserve_place(0)
    >>> replies.fill(second, b"2"); sent
    []
    >>> replies.fill(first, b"1"); sent
    [b'1', b'2']
    """

    __slots__ = ("_account", "_places", "_send")

    def __init__(self, send: Callable[[bytes], None], account: ReplyAccount) -> None:
        self._send = send
        self._account = account
        self._places: deque[Place] = deque()

    def __len__(self) -> int:
        """How many commands have no reply yet, or wait for the reply of an earlier one."""
        return len(self._places)

    @property
    def are_too_many(self) -> bool:
        """Whether no more commands may be executed before some of these replies were sent."""
        return len(self._places) >= MAX_UNANSWERED or self._account.is_full

    def reserve_place(self, size: int) -> Place:
        """The place of the next reply, whose command and reply take so many bytes at the most."""
        place = Place(size)
        self._account.add_command(size)
        self._places.append(place)
        return place

    def fill(self, place: Place, reply: bytes) -> None:
        """Give the reply of a place; it is sent when all before it are."""
        place.reply = reply
        places = self._places
        while places and (ready := places[0].reply) is not None:
            self._account.add_command(-places.popleft().size)
            self._send(ready)

    def add(self, reply: bytes) -> None:
        """Give the next reply."""
        if self._places:
            self.reserve_place(len(reply)).reply = reply
        else:
            self._send(reply)
