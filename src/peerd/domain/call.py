"""A call of a handler that is to be made later: where it goes, and its arguments."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Call:
    """What ``handler.with_args(…)`` makes: enough to enqueue it, without the handler's code.

    Args:
        queue: the queue's name.
        name: the handler's name.
        body: the JSON object of its arguments, as text.
        handler: who made it, for tests that run it on the spot; it is not what makes two calls differ.
        limit_key: by whom limits and turns count it, as its handler says; the option of an enqueue goes before it.
    """

    queue: str
    name: str
    body: str
    handler: object = field(default=None, compare=False, repr=False)
    limit_key: str | None = field(default=None, repr=False)
