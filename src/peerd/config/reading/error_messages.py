"""The words for each kind of error that reading the settings can meet."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, get_args, get_type_hints

from pydantic_core import ErrorDetails

from peerd.config.reading.suggestions import did_you_mean
from peerd.config.settings import Document, MailSettings, Section, WorkerSettings

MessageAndRemedy = tuple[str, str]
"""What is wrong, and the remedy."""


def describe_error(error: ErrorDetails) -> MessageAndRemedy:
    """What is wrong, and the remedy, for one error of validation."""
    if error["type"] == "extra_forbidden":
        return _describe_unknown_key(error)
    if error["type"] in _TYPE_MESSAGES:
        return _TYPE_MESSAGES[error["type"]], f"this is {_describe_type(error['input'])}"
    context = error.get("ctx", {})
    if error["type"] in _MESSAGES:
        return _MESSAGES[error["type"]](context)
    return error["msg"], ""


def key_path_of(error: ErrorDetails) -> tuple[str, ...]:
    """The key path that an error is about."""
    return tuple(str(part) for part in error["loc"] if part != "[key]" and not isinstance(part, int))


_TYPE_MESSAGES = {
    "int_type": "must be a whole number",
    "int_from_float": "must be a whole number",
    "bool_type": "must be true or false",
    "string_type": "must be text in quotes",
    "tuple_type": "must be text, or a list of texts",
    "path_type": "must be a path in quotes",
    "is_instance_of": "must be a path in quotes",
    "model_type": "must be a table",
    "dict_type": "must be a table",
    "mapping_type": "must be a table",
}

_MESSAGES: dict[str, Callable[[dict[str, Any]], MessageAndRemedy]] = {
    "value_error": lambda context: (str(context["error"]), ""),
    "greater_than_equal": lambda context: (f"must be at least {context['ge']}", ""),
    "less_than_equal": lambda context: (f"must be at most {context['le']}", ""),
    "string_too_long": lambda context: (f"must have at most {context['max_length']} characters", ""),
    "missing": lambda _: ("must be given", ""),
    "too_long": lambda context: (f"lists more than {context['max_length']}", ""),
    "too_short": lambda _: ("must not be empty", ""),
    "literal_error": lambda context: (f"must be {context['expected']}", ""),
    "enum": lambda context: (f"must be {context['expected']}", ""),
    "string_pattern_mismatch": lambda _: (
        "is not a name",
        "use up to 191 letters, digits, '.', '_' and '-', a letter or digit first",
    ),
}


def _describe_unknown_key(error: ErrorDetails) -> MessageAndRemedy:
    path = key_path_of(error)
    what = "unknown key" if len(path) > 1 else "unknown table"
    return what, did_you_mean(path[-1], _section_at(path[:-1]).known_keys())


def _section_at(path: tuple[str, ...]) -> type[Section]:
    if not path:
        return Document
    if path[0] == "workers":
        return WorkerSettings
    if path[0] == "alerts" and path[-1] == "mail":
        return MailSettings
    annotation = get_type_hints(Document)[path[0]]
    return next(kind for kind in (annotation, *get_args(annotation)) if isinstance(kind, type))


def _describe_type(value: object) -> str:
    match value:
        case bool():
            return "true or false"
        case str():
            return "text"
        case int() | float():
            return "a number"
        case list():
            return "a list"
        case dict():
            return "a table"
        case _:
            return f"a {type(value).__name__}"
