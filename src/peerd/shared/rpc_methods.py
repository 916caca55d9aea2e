"""What of a shared class another process may call, and how its arguments and results regain their types."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, get_type_hints

import msgspec

from peerd.shared.client import SharedClient
from peerd.shared.errors import NoSuchSharedMethod

LIFECYCLE_METHODS = frozenset({"open", "run", "close", "follow", "unfollow"})
"""Called by the agent alone."""


class RpcMethod:
    """One async method that may be called from another process.

    Args:
        function: of the class, not bound.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self.name = function.__name__
        self._signature = inspect.signature(function)
        self._hints = _hints(function)

    def arguments(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """What the method is to be called with, as its annotations want it.

        Raises:
            TypeError: they do not fit its signature.
            msgspec.ValidationError: nor its annotations.
        """
        bound = self._signature.bind(None, *args, **kwargs)
        for name, value in bound.arguments.items():
            kind = self._signature.parameters[name].kind
            if kind not in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD):
                bound.arguments[name] = _convert(value, self._hints.get(name, Any))
        return bound.args[1:], bound.kwargs

    def result(self, value: Any) -> Any:
        """What it has returned, as its annotation says."""
        return _convert(value, self._hints.get("return", Any))


def methods_of(kind: type[SharedClient]) -> list[str]:
    """The names of a class's public async methods, without those of its life.

    >>> class Studio(SharedClient):
    ...     async def price(self, film: str) -> float: ...
    ...     async def _connect(self) -> None: ...
    ...     def cached(self) -> float: ...
    >>> methods_of(Studio)
    ['price', 'publish']
    """
    return [name for name in dir(kind) if _is_callable(kind, name)]


def method_of(kind: type[SharedClient], name: str) -> RpcMethod:
    """One of them.

    Raises:
        NoSuchSharedMethod: there is none of this name.
    """
    if not _is_callable(kind, name):
        raise NoSuchSharedMethod(kind.__name__, name, methods_of(kind))
    return RpcMethod(getattr(kind, name))


def name_of(kind: type[SharedClient]) -> str:
    """By which the processes of a node mean the same class."""
    return f"{kind.__module__}.{kind.__qualname__}"


def _is_callable(kind: type[SharedClient], name: str) -> bool:
    is_public = not name.startswith("_") and name not in LIFECYCLE_METHODS
    return is_public and inspect.iscoroutinefunction(getattr(kind, name, None))


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    try:
        return get_type_hints(function)
    except Exception:  # noqa: BLE001 - annotations that cannot be looked up say nothing
        return {}


def _convert(value: Any, hint: Any) -> Any:
    try:
        return value if hint is Any else msgspec.convert(value, hint)
    except TypeError:  # an annotation that msgspec knows nothing about
        return value
