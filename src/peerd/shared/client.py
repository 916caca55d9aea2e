"""The base class of a user's shared client, a connection that a machine should have once; and its proxies.

A proxy has `subscribe`, and the methods of the class that another process may call.
"""

from __future__ import annotations

import asyncio
import inspect
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self, TypeVar, cast, get_type_hints

import msgspec

from peerd.runtime.concurrency import running_loop
from peerd.shared.protocol import NoSuchSharedMethod, WrongEventLoop

if TYPE_CHECKING:
    from peerd.shared.connection import SharedConnection
    from peerd.shared.shared_instance import SharedRegistry


LIFECYCLE_METHODS: Final = frozenset({"open", "run", "close", "follow", "unfollow"})
"""Called by the agent alone."""
MAX_BACKLOG: Final = 100
"""Updates that wait for one reader; beyond it all but the latest are dropped."""


class Update(msgspec.Struct, frozen=True, kw_only=True):
    """A value of a key.

    Args:
        key: which was subscribed to.
        value: the latest.
        generation: greater after each reconnection to the source.
        missed: whether others may have come between this one and the one before: they came too fast, or the agent or
            the connection to the source was replaced meanwhile.
    """

    key: Any
    value: Any
    generation: int
    missed: bool = False


class Subscription:
    """The updates of a key: ``async for update in subscription``. The last known value comes at once.

    It is ended by `close`, or by leaving ``async with``. An iteration raises what made it impossible, such as
    `SharedCallFailed` when the real client cannot follow the key.
    """

    def __init__(self, key: Any, end: Callable[[Subscription], None], changed: asyncio.Event | None = None) -> None:
        """Made by ``subscribe``.

        Args:
            key: which is followed.
            end: unsubscribes from the source.
            changed: set when an update or an error has come.
        """
        self.key = key
        self.latest: Update | None = None
        """The newest update, whether or not it has been read."""
        self._end = end
        self._backlog: deque[tuple[Any, int, int]] = deque()
        self._changed = changed or asyncio.Event()
        self.error: Exception | None = None
        """Why no further update comes, if none does."""
        self._closed = False
        self._last_read: tuple[int, int] | None = None

    def close(self) -> None:
        """Unsubscribe; an iteration ends."""
        if not self._closed:
            self._closed = True
            self._changed.set()
            self._end(self)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Update:
        while not self._closed:
            if (waiting := self.take()) is not None:
                value, number, generation = waiting
                missed = self._last_read is not None and self._last_read != (generation, number - 1)
                self._last_read = (generation, number)
                return Update(key=self.key, value=value, generation=generation, missed=missed)
            if self.error is not None:
                raise self.error
            self._changed.clear()
            await self._changed.wait()
        raise StopAsyncIteration

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # ---------------------------------------------------------------- for the source

    def deliver(self, value: Any, number: int, generation: int) -> None:
        """Add a value: the `number`th of this generation of the connection to the source."""
        self.latest = Update(key=self.key, value=value, generation=generation)
        if len(self._backlog) >= MAX_BACKLOG:
            self._backlog.clear()  # the reader is too slow for all updates, and gets the latest
        self._backlog.append((value, number, generation))
        self._changed.set()

    def fail(self, error: Exception) -> None:
        """End the updates with an error."""
        self.error = error
        self._changed.set()

    def take(self) -> tuple[Any, int, int] | None:
        """The oldest waiting value with its number and generation."""
        return self._backlog.popleft() if self._backlog else None


class SharedClient:
    """A connection to something outside; each machine has one, in its agent.

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


# ---------------------------------------------------------------- its methods for other processes


def methods_of(kind: type[SharedClient]) -> list[str]:
    """The names of a class's public async methods, without the lifecycle methods.

    >>> class Studio(SharedClient):
    ...     async def price(self, film: str) -> float: ...
    ...     async def _connect(self) -> None: ...
    ...     def cached(self) -> float: ...
    >>> methods_of(Studio)
    ['price', 'publish']
    """
    return [name for name in dir(kind) if _is_callable(kind, name)]


def method_of(kind: type[SharedClient], name: str) -> Callable[..., Any]:
    """A method of a shared client, unbound.

    Raises:
        NoSuchSharedMethod: there is none of this name.
    """
    if not _is_callable(kind, name):
        raise NoSuchSharedMethod(kind.__name__, name, methods_of(kind))
    method: Callable[..., Any] = getattr(kind, name)
    return method


def name_of(kind: type[SharedClient]) -> str:
    """The name of a class in messages."""
    return f"{kind.__module__}.{kind.__qualname__}"


def convert_arguments(
    method: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of a call, converted to the annotations of the method.

    Raises:
        TypeError: they do not fit its signature.
        msgspec.ValidationError: they do not fit its annotations.
    """
    signature, hints = inspect.signature(method), _hints(method)
    bound = signature.bind(None, *args, **kwargs)
    for name, value in bound.arguments.items():
        if signature.parameters[name].kind not in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD):
            bound.arguments[name] = _convert(value, hints.get(name, Any))
    return bound.args[1:], bound.kwargs


def convert_result(method: Callable[..., Any], value: Any) -> Any:
    """The result of a call, converted to the annotation of the method."""
    return _convert(value, _hints(method).get("return", Any))


def _is_callable(kind: type[SharedClient], name: str) -> bool:
    is_public = not name.startswith("_") and name not in LIFECYCLE_METHODS
    return is_public and inspect.iscoroutinefunction(getattr(kind, name, None))


def _hints(method: Callable[..., Any]) -> dict[str, Any]:
    try:
        return get_type_hints(method)
    except Exception:  # noqa: BLE001 - annotations that cannot be resolved are ignored
        return {}


def _convert(value: Any, hint: Any) -> Any:
    try:
        return value if hint is Any else msgspec.convert(value, hint)
    except TypeError:  # an annotation that msgspec does not support
        return value


# ---------------------------------------------------------------- proxies


C = TypeVar("C", bound=SharedClient)


class SharedClients:
    """Gives proxies: ``ctx.shared(StudioClient)``. Made on the event loop that runs their calls.

    The backend is the registry in the agent, and a connection in other processes.
    """

    def __init__(self, backend: SharedRegistry | SharedConnection) -> None:
        self.backend = backend
        self.loop = asyncio.get_running_loop()

    def __call__(self, kind: type[C], *, timeout: float | None = None) -> C:
        """The proxy of a shared client.

        Args:
            kind: the class below `SharedClient`.
            timeout: seconds that each call of the proxy may take; the class's `call_timeout` when None.
        """
        return cast("C", SharedProxy(kind, self, kind.call_timeout if timeout is None else timeout))


class SharedProxy:
    """Stands for the real client of a class.

    In a thread without an event loop its methods wait for the answer and return it.
    """

    def __init__(self, kind: type[SharedClient], clients: SharedClients, timeout: float) -> None:
        self._kind = kind
        self._clients = clients
        self._timeout = timeout

    def __repr__(self) -> str:
        return f"<the shared {name_of(self._kind)}>"

    def __dir__(self) -> list[str]:
        return [*methods_of(self._kind), "subscribe"]

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method_of(self._kind, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            is_on_loop = self._is_on_loop()
            answer = self._clients.backend.call(self._kind, name, args, kwargs, self._timeout)
            return answer if is_on_loop else asyncio.run_coroutine_threadsafe(answer, self._clients.loop).result()

        call.__name__ = name
        return call

    def subscribe(self, key: Any) -> Subscription:
        """Follow a key; see `SharedClient.subscribe`."""
        if not self._is_on_loop():
            raise WrongEventLoop
        return self._clients.backend.subscribe(self._kind, key)

    def _is_on_loop(self) -> bool:
        """Whether the process's event loop runs here; False in a thread without one."""
        running = running_loop()
        if running not in {None, self._clients.loop}:
            raise WrongEventLoop
        return running is not None
