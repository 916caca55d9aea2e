"""Proxies of shared clients: `subscribe`, and the async methods that another process may call."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, cast, get_type_hints

import msgspec

from peerd.shared.client import SharedClient, Subscription
from peerd.shared.protocol import NoSuchSharedMethod, WrongEventLoop

if TYPE_CHECKING:
    from peerd.shared.connection import SharedConnection
    from peerd.shared.shared_instance import SharedRegistry

C = TypeVar("C", bound=SharedClient)
LIFECYCLE_METHODS = frozenset({"open", "run", "close", "follow", "unfollow"})
"""Called by the agent alone."""


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
        try:
            running = asyncio.get_running_loop()
        except RuntimeError:
            return False
        if running is not self._clients.loop:
            raise WrongEventLoop
        return True


# ---------------------------------------------------------------- methods


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
    """One of these methods, unbound.

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
