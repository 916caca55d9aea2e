"""The values of a configuration become a `Document`: as far as they are right, with the problems of the others.

What is wrong is left out and the rest is validated again, so that one mistake does not hide those that only show when
the values are held against each other.
"""

from __future__ import annotations

from typing import Any, Final

from pydantic_core import ErrorDetails

from peerd.config.problems import Problem
from peerd.config.reading.error_messages import place_of, word
from peerd.config.reading.models import ValidationError, read
from peerd.config.reading.source import Place, Source
from peerd.config.settings import Document

MOST: Final = 100
"""Problems of values that are listed."""
ROUNDS: Final = 5
"""Leaving a value out can make the table around it incomplete, and that the one around it: no table is deeper."""


def validate(source: Source) -> tuple[Document | None, list[Problem], frozenset[Place]]:
    """The document that the right values make, what is wrong with the others, and the places that have defaults for it.

    There is no document where even the rest cannot be validated.
    """
    problems: list[Problem] | None = None
    left_out: set[Place] = set()
    unknown: set[Place] = set()
    for _ in range(ROUNDS):
        try:
            document = read(Document, _without(left_out, source.values, ()))
        except ValidationError as error:
            details = error.errors(include_url=False)
            problems = _problems(details, source) if problems is None else problems
            left_out |= {_place_to_leave_out(detail) for detail in details}
            unknown |= {place_of(detail) for detail in details if detail["type"] == "extra_forbidden"}
        else:
            return document, problems or [], frozenset(left_out - unknown)
    return None, problems or [], frozenset(left_out)


def _problems(details: list[ErrorDetails], source: Source) -> list[Problem]:
    problems = [source.problem(place_of(detail), *word(detail)) for detail in details[:MOST]]
    if len(details) > MOST:
        problems.append(source.problem((), f"{len(details) - MOST:,} more problems are not listed"))
    return problems


def _place_to_leave_out(detail: ErrorDetails) -> Place:
    """The value that is wrong; or the table in which one is missing."""
    place = place_of(detail)
    return place[:-1] if detail["type"] == "missing" else place


def _without(left_out: set[Place], table: dict[str, Any], place: Place) -> dict[str, Any]:
    """A copy of a table, without the values at the places that are left out."""
    kept = {}
    for name, value in table.items():
        inner = (*place, name)
        if inner in left_out:
            continue
        kept[name] = _without(left_out, value, inner) if isinstance(value, dict) and len(inner) < ROUNDS - 1 else value
    return kept
