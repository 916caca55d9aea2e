"""What a user writes for a connection that a machine should have once: a class with async methods."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from peerd.shared.subscription import Subscription


class SharedClient:
    """A connection to something outside, of which each machine has one: in its agent.

    The agent's setup makes it (`agent.share(StudioClient, url)`); any process of the node uses it through
    ``ctx.shared(StudioClient)``, which has the same async methods, and `subscribe`. What goes over is what JSON can
    say, and bytes and times; arguments and results with annotations arrive as what these say.

    Example:
        >>> class StudioClient(SharedClient):
        ...     async def open(self) -> None:
        ...         self.films = {"a.mp4": 90}
        ...
        ...     async def minutes_of(self, film: str) -> int:  # a call: await ctx.shared(StudioClient).minutes_of(…)
        ...         return self.films[film]
        ...
        ...     async def follow(self, key: str) -> None:  # the first subscriber of a key has come
        ...         self.emit(key, self.films.get(key))
        ...
        ...     async def publish(self, key: str, value: int) -> None:
        ...         self.films[key] = value
        ...         self.emit(key, value)
    """

    call_timeout: ClassVar[float] = 10.0
    """Seconds that a call may take where the caller names no other."""

    _emit: Callable[[Any, Any], None] | None = None

    async def open(self) -> None:
        """Connect. What it raises is told, and a fresh object of the class is opened after a pause that grows."""

    async def run(self) -> None:
        """Do what the connection needs while it is open, such as reading from it; waits for ever as it stands.

        When it raises or returns, the connection is over: the object is closed, and a fresh one is opened and told all
        that is followed.
        """
        await asyncio.Event().wait()

    async def close(self) -> None:
        """Let go of the connection. Called also after an `open` that failed."""

    async def follow(self, key: Any) -> None:
        """Begin to `emit` the values of a key: its first subscriber has come. The value that it has now is the first.

        Args:
            key: whatever the subscribers name: a text, a number, a list or dict of them.
        """
        raise NotImplementedError(f"{type(self).__name__} has no method follow(key): nothing can be subscribed to")

    async def unfollow(self, key: Any) -> None:
        """End what `follow` began: the last subscriber has gone."""

    async def publish(self, key: Any, value: Any) -> None:
        """Send a value of a key to the source. It reaches subscribers when the source, or `emit`, says it again."""
        raise NotImplementedError(f"{type(self).__name__} has no method publish(key, value)")

    def emit(self, key: Any, value: Any) -> None:
        """Give a new value of a key to all its subscribers; the latest is kept for those that come later.

        May be called from any thread. What nobody follows is dropped.

        Raises:
            NotSerializable: the key or the value, or it is too large.
        """
        if self._emit is None:
            raise RuntimeError(f"{type(self).__name__} is not shared: only what agent.share() has made may emit")
        self._emit(key, value)

    def subscribe(self, key: Any) -> Subscription:
        """Follow a key, through what ``ctx.shared`` and ``agent.share`` give: ``async for update in …subscribe(key)``.

        The real object has no subscribers of its own; it emits.
        """
        raise TypeError(f"subscribe through ctx.shared({type(self).__name__}) or agent.share({type(self).__name__})")
