"""A handler's arguments: encoded into a body, decoded and checked from a body, and made into a limit_key."""

from __future__ import annotations

import copy
import inspect
import re
import typing
from collections.abc import Callable
from pathlib import PurePath
from typing import Any

import msgspec

from peerd.domain.errors import InvalidArguments
from peerd.domain.known_handlers import MAX_REASON_LENGTH, HandlerSignature
from peerd.domain.outcome import truncate
from peerd.domain.quoting import quoted
from peerd.domain.task import NON_FINITE_PROBLEM, contains_non_finite

OBJECT_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
UNSUPPORTED_PARAMETERS = {
    inspect.Parameter.VAR_POSITIONAL: "*{0} has no name in the body; name each argument",
    inspect.Parameter.VAR_KEYWORD: "**{0} cannot be checked; name each argument",
    inspect.Parameter.POSITIONAL_ONLY: "{0} is positional only; the body names each argument",
}


class HandlerArguments:
    """The arguments that a handler's signature declares.

    Args:
        function: its annotations say the types; what has none takes any JSON value. A first parameter called ``ctx``
            is not an argument: it gets the Context.
        name: the handler's name, for errors.

    Raises:
        InvalidArguments: the signature cannot be served from a JSON object.

    >>> def transcode(ctx, source: str, height: int = 720): ...
    >>> arguments = HandlerArguments(transcode, "transcode")
    >>> arguments.body("a.mp4", height=1080)
    '{"source":"a.mp4","height":1080}'
    >>> arguments.decode('{"source":"a.mp4"}')
    {'source': 'a.mp4', 'height': 720}
    >>> arguments.decode('{"source":7}')
    Traceback (most recent call last):
    peerd.domain.errors.InvalidArguments: transcode: Expected `str`, got `int` - at `$.source`
    """

    def __init__(self, function: Callable[..., Any], name: str) -> None:
        self.name = name
        parameters = list(inspect.signature(function).parameters.values())
        self.takes_context = bool(parameters) and parameters[0].name == "ctx"
        self._parameters = parameters[1:] if self.takes_context else parameters
        self._signature = inspect.Signature(self._parameters)
        for parameter in self._parameters:
            if parameter.kind in UNSUPPORTED_PARAMETERS:
                raise InvalidArguments(name, UNSUPPORTED_PARAMETERS[parameter.kind].format(parameter.name))
        self._positional_names = tuple(
            parameter.name for parameter in self._parameters if parameter.kind is not inspect.Parameter.KEYWORD_ONLY
        )
        self._names = dict.fromkeys(self._signature.parameters).keys()
        self.names = tuple(self._names)
        empty = inspect.Parameter.empty
        self._required_names = frozenset(param.name for param in self._parameters if param.default is empty)
        self.signature: HandlerSignature = {
            param.name: (_annotation_text(param), param.name in self._required_names) for param in self._parameters
        }
        """Published to the other processes of the cluster."""
        try:
            self._struct = self._define(function)
            self._decoder = msgspec.json.Decoder(self._struct, dec_hook=_decode_path)
        except (TypeError, NameError, RuntimeError) as error:
            raise InvalidArguments(name, f"its signature cannot be served from JSON: {error}") from error

    def body(self, /, *args: Any, **kwargs: Any) -> str:
        """The body of a call with these arguments; raises `InvalidArguments`. Defaults are applied when it runs."""
        given = self._bound(args, kwargs)
        try:
            text = msgspec.json.encode(given, enc_hook=_encode_path).decode()
        except (TypeError, ValueError, RecursionError) as error:
            raise InvalidArguments(self.name, f"an argument cannot be written as JSON: {error}") from error
        self._checked(text)
        if "null" in text and contains_non_finite(msgspec.to_builtins(given, enc_hook=_encode_path)):
            raise InvalidArguments(self.name, f"an argument {NON_FINITE_PROBLEM}")
        return text

    def decode(self, body: str | bytes | None) -> dict[str, Any]:
        """The values of a body; raises `InvalidArguments` where one is missing, unknown, or of a wrong type."""
        return msgspec.structs.asdict(self._checked(body if body is not None else b"{}"))

    def _checked(self, body: str | bytes) -> msgspec.Struct:
        try:
            return self._decoder.decode(body)
        except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
            raise InvalidArguments(self.name, truncate(str(error), MAX_REASON_LENGTH)) from None

    def _bound(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """The arguments by their names, in the order of the signature.

        `inspect` takes as long as all the rest of a call, so only its error is used.
        """
        given = dict(zip(self._positional_names, args, strict=False))
        if not kwargs and len(given) == len(args) == len(self._names):
            return given
        given.update(kwargs)
        once = len(given) == len(args) + len(kwargs)
        if once and given.keys() >= self._required_names and given.keys() <= self._names:
            return {name: given[name] for name in self._names if name in given} if kwargs else given
        try:
            return self._signature.bind(*args, **kwargs).arguments
        except TypeError as error:
            raise InvalidArguments(self.name, str(error)) from None

    def _define(self, function: Callable[..., Any]) -> type[msgspec.Struct]:
        hints = typing.get_type_hints(function, include_extras=True)
        fields: list[Any] = [
            (param.name, hints.get(param.name, Any), *_default(param.default)) for param in self._parameters
        ]
        return msgspec.defstruct(self.name.title() or "Arguments", fields, kw_only=True, forbid_unknown_fields=True)


def _annotation_text(parameter: inspect.Parameter) -> str:
    """An annotation's text, without what differs from process to process."""
    if parameter.annotation is inspect.Parameter.empty:
        return ""
    text = parameter.annotation
    return OBJECT_ADDRESS.sub("", text if isinstance(text, str) else inspect.formatannotation(text))


def _default(value: Any) -> tuple[Any, ...]:
    """The default of a field, if any; a mutable one is copied, as msgspec requires."""
    if value is inspect.Parameter.empty:
        return ()
    if isinstance(value, list | dict | set | bytearray):
        return (msgspec.field(default_factory=lambda: copy.copy(value)),)
    return (value,)


def _decode_path(kind: type, value: object) -> Any:
    if issubclass(kind, PurePath) and isinstance(value, str):
        return kind(value)
    raise TypeError(f"{kind} cannot be read from JSON")


def _encode_path(value: Any) -> Any:
    if isinstance(value, PurePath):
        return str(value)
    raise TypeError(f"{type(value).__name__} is not JSON")


def encode_result(value: object) -> str | None:
    """A handler's result as JSON text; None stays None. Raises TypeError for what is not JSON."""
    return None if value is None else msgspec.json.encode(value, enc_hook=_encode_path).decode()


LimitKey = str | Callable[..., str | float | None]
"""The name of an argument, or a function of the arguments, which are given by their names."""


class LimitKeyFunction:
    """Makes the limit_key of a task from its arguments.

    Args:
        of: the name of an argument, or a function of all of them, without the context.
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
        """The key of a task with this body; raises `InvalidArguments` if it is neither text nor a number."""
        given = self._arguments.decode(body)
        value = self._of(**given) if callable(self._of) else given[self._of]
        try:
            plain = msgspec.to_builtins(value, enc_hook=_encode_path)
        except (TypeError, ValueError, RecursionError):
            plain = value
        match plain:
            case None | str():
                return plain
            case int() | float() if not isinstance(plain, bool):
                return str(plain)
            case _:
                subject = "its function gives" if callable(self._of) else f"the argument {self._of} is"
                raise self._error(f"limit_key is a text or a number, and {subject} {quoted(value)}")

    def _require_accepting_function(self, function: Callable[..., Any]) -> None:
        try:
            signature = inspect.signature(function)
        except ValueError:  # a builtin without a signature
            return
        try:
            signature.bind(**dict.fromkeys(self._arguments.names))
        except TypeError as error:
            has = ", ".join(self._arguments.names) or "none"
            problem = f"limit_key is called with its arguments by their names ({has}): {error}"
            raise self._error(problem) from None

    def _error(self, problem: str) -> InvalidArguments:
        return InvalidArguments(self._arguments.name, problem)
