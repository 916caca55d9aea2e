"""Errors as data: what an error was made with, and the same error made again from it.

Each error words itself, and keeps what it was made with in attributes of the same names. So an error of a server is
raised by its client as the same class, with the same attributes and the same text.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, Final

import msgspec

from peerd.domain.errors import InvalidTask, PeerdError
from peerd.domain.lifecycle import IllegalTransition
from peerd.domain.quoting import without_tokens
from peerd.operate.wire.signatures import ArgumentStruct

MAX_DATA: Final = 16_384
"""Bytes of JSON; an error with more is sent without its arguments."""
HOMES: Final = ("peerd.domain.",)
"""Modules whose errors a client makes again."""
NAMED_HERE: Final = (InvalidTask, IllegalTransition)
"""One of each of these modules, which are loaded so."""


def error_data(error: PeerdError) -> dict[str, Any] | None:
    """What an error was made with, by name, as JSON has it, without tokens; None if it cannot be made from that.

    >>> error_data(InvalidTask("queue", "has none"))
    {'field': 'queue', 'problem': 'has none'}
    """
    arguments = known_errors().get(type(error).__name__)
    if arguments is None:
        return None
    try:
        encoded = msgspec.json.encode({name: getattr(error, name) for name in arguments.names()})
        return msgspec.json.decode(without_tokens(encoded.decode())) if len(encoded) <= MAX_DATA else None
    except (AttributeError, TypeError, ValueError, RecursionError):
        return None


def error_from_data(code: str, data: object) -> PeerdError | None:
    """The error of a code and what it was made with; None for others than the errors of the domain.

    >>> error_from_data("IllegalTransition", {"status": "done", "event": "cancel"})
    IllegalTransition('cannot cancel a task that is done; only one that is scheduled, ...')
    >>> error_from_data("IllegalTransition", {"status": "well"}), error_from_data("SystemExit", {})
    (None, None)
    """
    arguments = known_errors().get(code)
    if arguments is None:
        return None
    try:
        args, kwargs = arguments.unbind(msgspec.convert(data, arguments.type))
        return _classes()[code](*args, **kwargs)
    except (TypeError, ValueError, msgspec.MsgspecError, RecursionError):
        return None


@cache
def known_errors() -> Mapping[str, ArgumentStruct]:
    """The arguments of each error of the domain, by the name of its class."""
    return {name: ArgumentStruct(f"{name}Data", kind.__init__) for name, kind in _classes().items()}


def _classes() -> dict[str, type[PeerdError]]:
    found = _subclasses(PeerdError)
    return {kind.__name__: kind for kind in found if kind.__module__.startswith(HOMES) and _words_itself(kind)}


def _words_itself(kind: type[PeerdError]) -> bool:
    return kind.__init__ is not PeerdError.__init__ and not kind.__name__.startswith("_")


def _subclasses(kind: type[PeerdError]) -> Iterator[type[PeerdError]]:
    for one in kind.__subclasses__():
        yield one
        yield from _subclasses(one)
