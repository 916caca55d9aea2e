"""A call of a handler that is made later: its queue, its handler's name and its arguments."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Call:
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
    handler: object = field(default=None, compare=False, repr=False)
    limit_key: str | None = field(default=None, repr=False)
