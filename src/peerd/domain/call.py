"""A call of a handler that is made later: its queue, its handler's name and its arguments."""

from __future__ import annotations

import msgspec


class Call(msgspec.Struct, frozen=True):
    """The result of ``handler.with_args(…)``: enough to enqueue the task, without the handler's code.

    Args:
        queue: the queue's name.
        name: the handler's name.
        body: the JSON object of its arguments, as text.
        handler: the object that made it, for tests that run it inline; two calls may differ in it and be equal.
        limit_key: the key for limits and turns that the handler computes; the option of an enqueue replaces it.

    >>> Call("video", "look", "{}", handler=print)
    Call(queue='video', name='look', body='{}')
    """

    queue: str
    name: str
    body: str
    handler: object = None
    limit_key: str | None = None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Call) and self._identity() == other._identity() and self.limit_key == other.limit_key

    def __hash__(self) -> int:
        return hash(self._identity())

    def __repr__(self) -> str:
        return "Call(queue={!r}, name={!r}, body={!r})".format(*self._identity())

    def _identity(self) -> tuple[str, str, str]:
        return self.queue, self.name, self.body
