"""The values of a configuration become a `Document`: as far as they are right, with the problems of the others.

What is wrong is left out and the rest is validated again, so that one mistake does not hide those that only show when
the values are held against each other.
"""

from __future__ import annotations

from typing import Any, Final

from pydantic_core import ErrorDetails

from peerd.config.problems import Problem
from peerd.config.reading.error_messages import describe_error, key_path_of
from peerd.config.reading.models import ValidationError, parse_section
from peerd.config.reading.source import ConfigSource, KeyPath
from peerd.config.settings import Document

MAX_PROBLEMS: Final = 100
"""Problems of values that are listed."""
MAX_ROUNDS: Final = 5
"""Leaving a value out can make the table around it incomplete, and that the one around it: no table is deeper."""


def validate(source: ConfigSource) -> tuple[Document | None, list[Problem], frozenset[KeyPath]]:
    """The document that the right values make, what is wrong with the others, and the places that have defaults for it.

    There is no document where even the rest cannot be validated.
    """
    problems: list[Problem] | None = None
    invalid_keys: set[KeyPath] = set()
    unknown: set[KeyPath] = set()
    for _ in range(MAX_ROUNDS):
        try:
            document = parse_section(Document, _without_keys(invalid_keys, source.values, ()))
        except ValidationError as error:
            details = error.errors(include_url=False)
            problems = _to_problems(details, source) if problems is None else problems
            invalid_keys |= {_invalid_key_of(detail) for detail in details}
            unknown |= {key_path_of(detail) for detail in details if detail["type"] == "extra_forbidden"}
        else:
            return document, problems or [], frozenset(invalid_keys - unknown)
    return None, problems or [], frozenset(invalid_keys)


def _to_problems(details: list[ErrorDetails], source: ConfigSource) -> list[Problem]:
    problems = [source.problem(key_path_of(detail), *describe_error(detail)) for detail in details[:MAX_PROBLEMS]]
    if len(details) > MAX_PROBLEMS:
        problems.append(source.problem((), f"{len(details) - MAX_PROBLEMS:,} more problems are not listed"))
    return problems


def _invalid_key_of(detail: ErrorDetails) -> KeyPath:
    """The value that is wrong; or the table in which one is missing."""
    key_path = key_path_of(detail)
    return key_path[:-1] if detail["type"] == "missing" else key_path


def _without_keys(invalid_keys: set[KeyPath], table: dict[str, Any], key_path: KeyPath) -> dict[str, Any]:
    """A copy of a table, without the values at the places that are left out."""
    kept = {}
    for name, value in table.items():
        inner = (*key_path, name)
        if inner in invalid_keys:
            continue
        kept[name] = (
            _without_keys(invalid_keys, value, inner)
            if isinstance(value, dict) and len(inner) < MAX_ROUNDS - 1
            else value
        )
    return kept
