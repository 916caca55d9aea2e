"""The base class of a user's shared client: a connection that a machine should have once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from peerd.shared.subscription import Subscription


class SharedClient:
    """A connection to something outside, of which each machine has one: in its agent.

    The agent's setup makes it (`agent.share(StudioClient, url)`); any process of the node uses it through
    ``ctx.shared(StudioClient)``, which has the same async methods, and `subscribe`. JSON values, bytes and times are
    carried over; arguments and results with annotations arrive as the annotated types.

    Example:
        >>> class StudioClient(SharedClient):
        ...     async def open(self) -> None:
        ...         self.films = {"a.mp4": 90}
        ...
        ...     async def minutes_of(self, film: str) -> int:  # a call: await ctx.shared(StudioClient).minutes_of(…)
        ...         return self.films[film]
        ...
        ...     async def follow(self, key: str) -> None:  # the first subscriber of a key
        ...         self.emit(key, self.films.get(key))
        ...
        ...     async def publish(self, key: str, value: int) -> None:
        ...         self.films[key] = value
        ...         self.emit(key, value)
    """

    call_timeout: ClassVar[float] = 10.0
    """Seconds that a call may take unless the caller sets another timeout."""

    _emit: Callable[[Any, Any], None] | None = None

    async def open(self) -> None:
        """Connect. An exception is logged, and a new object of the class is opened after a pause that grows."""

    async def run(self) -> None:
        """Do what the connection needs while it is open, such as reading from it; by default, wait for ever.

        When it raises or returns, the connection has ended: the object is closed, and a new one is opened and follows
        the same keys.
        """
        await asyncio.Event().wait()

    async def close(self) -> None:
        """Close the connection. Called also after an `open` that failed."""

    async def follow(self, key: Any) -> None:
        """Start to `emit` the values of a key, the present one first. Called for the first subscriber of the key.

        Args:
            key: as the subscribers give it: a text, a number, a list or dict of them.
        """
        raise NotImplementedError(f"{type(self).__name__} has no method follow(key): nothing can be subscribed to")

    async def unfollow(self, key: Any) -> None:
        """End what `follow` started. Called after the last subscriber."""

    async def publish(self, key: Any, value: Any) -> None:
        """Send a value of a key to the source. Subscribers get it when the source, or `emit`, gives it back."""
        raise NotImplementedError(f"{type(self).__name__} has no method publish(key, value)")

    def emit(self, key: Any, value: Any) -> None:
        """Give a new value of a key to all its subscribers; the latest is kept for later subscribers.

        May be called from any thread. The value of a key without subscribers is dropped.

        Raises:
            NotSerializable: the key or the value, or it is too large.
        """
        if self._emit is None:
            raise RuntimeError(f"{type(self).__name__} is not shared: only an object made by agent.share() may emit")
        self._emit(key, value)

    def subscribe(self, key: Any) -> Subscription:
        """Follow a key: ``async for update in ctx.shared(…).subscribe(key)``.

        Only for proxies, which ``ctx.shared`` and ``agent.share`` give.
        """
        raise TypeError(f"subscribe through ctx.shared({type(self).__name__}) or agent.share({type(self).__name__})")
