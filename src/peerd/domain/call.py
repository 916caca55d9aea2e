"""A call of a handler that is to be made later: where it goes, and its arguments."""

from __future__ import annotations

import msgspec


class Call(msgspec.Struct, frozen=True):
    """What ``handler.with_args(…)`` makes: enough to enqueue it, without the handler's code.

    Args:
        queue: the queue's name.
        name: the handler's name.
        body: the JSON object of its arguments, as text.
    """

    queue: str
    name: str
    body: str
