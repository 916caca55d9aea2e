"""The methods of a shared class that another process may call, and the types of their arguments and results."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, get_type_hints

import msgspec

from peerd.shared.client import SharedClient
from peerd.shared.errors import NoSuchSharedMethod

LIFECYCLE_METHODS = frozenset({"open", "run", "close", "follow", "unfollow"})
"""Called by the agent alone."""


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
