"""The limit_key of a handler's tasks, made of their arguments."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from peerd.domain.errors import InvalidArguments
from peerd.domain.quoting import quoted
from peerd.work.arguments import HandlerArguments, to_json_value

LimitKey = str | Callable[..., str | float | None]
"""The name of an argument, or a function of the arguments, which are given by their names."""


class LimitKeyFunction:
    """Makes the key of a call.

    Args:
        of: the name of an argument, or a function of all of them, the context left out.
        arguments: of the handler.

    Raises:
        InvalidArguments: the handler has no such argument, or the function does not take those that it has.

    >>> def upload(ctx, customer: int, path: str): ...
    >>> arguments = HandlerArguments(upload, "upload")
    >>> LimitKeyFunction("customer", arguments)('{"customer":7,"path":"a.mp4"}')
    '7'
    >>> LimitKeyFunction(lambda path, **others: path.partition(".")[0], arguments)('{"customer":7,"path":"a.mp4"}')
    'a'
    >>> LimitKeyFunction("client", arguments)
    Traceback (most recent call last):
    peerd.domain.errors.InvalidArguments: upload: limit_key names no argument of it: 'client'; it has customer, path
    """

    def __init__(self, of: LimitKey, arguments: HandlerArguments) -> None:
        self._of = of
        self._arguments = arguments
        if callable(of):
            self._require_accepting_function(of)
        elif of not in arguments.names:
            has = ", ".join(arguments.names) or "none"
            raise self._error(f"limit_key names no argument of it: {quoted(of)}; it has {has}")

    def __call__(self, body: str) -> str | None:
        """The key of a task with this body; what the body leaves out has its default.

        Raises:
            InvalidArguments: it is neither text nor a number.
        """
        given = self._arguments.decode(body)
        value = self._of(**given) if callable(self._of) else given[self._of]
        return self._text_of(value)

    def _text_of(self, value: Any) -> str | None:
        """A text as it is, a number as JSON writes it, and what JSON words as one of them."""
        try:
            plain = to_json_value(value)
        except (TypeError, ValueError, RecursionError):
            plain = value
        match plain:
            case None | str():
                return plain
            case int() | float() if not isinstance(plain, bool):
                return str(plain)
            case _:
                whose = "its function gives" if callable(self._of) else f"the argument {self._of} is"
                raise self._error(f"limit_key is a text or a number, and {whose} {quoted(value)}")

    def _require_accepting_function(self, function: Callable[..., Any]) -> None:
        try:
            signature = inspect.signature(function)
        except ValueError:  # one of those in C that do not say
            return
        try:
            signature.bind(**dict.fromkeys(self._arguments.names))
        except TypeError as error:
            has = ", ".join(self._arguments.names) or "none"
            problem = f"limit_key is called with its arguments by their names ({has}): {error}"
            raise self._error(problem) from None

    def _error(self, problem: str) -> InvalidArguments:
        return InvalidArguments(self._arguments.name, problem)
