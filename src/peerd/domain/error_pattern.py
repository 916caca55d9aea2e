"""The pattern of an error text: what errors of one cause have in common, whatever they name."""

from __future__ import annotations

import re
from typing import Final

from peerd.domain.masking import MASKED

MOST_TEXT: Final = 200
"""Characters of an error that its pattern is made of."""
LEAST_TO_SEARCH: Final = 4
"""Characters of a text that is worth a search."""
_MARKS: Final = (
    (re.compile(r"\b0x[0-9a-f]+\b", re.IGNORECASE), "<address>"),
    (re.compile(r"\b\d{1,3}(?:\.\d{1,3}){3}(?::\d+)?\b|\[[0-9a-f:]{2,39}\](?::\d+)?", re.IGNORECASE), "<address>"),
    (re.compile(r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", re.IGNORECASE), "<id>"),
    (re.compile(r"\b(?=[a-f]*\d)(?=\d*[a-f])[0-9a-f]{8,}\b", re.IGNORECASE), "<id>"),
    (re.compile(r"\d+(?:\.\d+)?"), "<n>"),
)
"""Each replaces what those before it have left."""
_MARK: Final = re.compile(rf"<(?:address|id|n)>|{re.escape(MASKED)}")


def pattern_of(error: str) -> str:
    """The beginning of the first line of an error, with marks for its numbers, ids and addresses.

    Args:
        error: its text, which may be of many lines.

    >>> pattern_of("ConnectionRefusedError: [Errno 111] Connect call failed ('127.0.0.1', 5432)")
    "ConnectionRefusedError: [Errno <n>] Connect call failed ('<address>', <n>)"
    >>> pattern_of("KeyError: 'user-17'"), pattern_of("no file 5f2b9c01aa33 at 0x7f00")
    ("KeyError: 'user-<n>'", 'no file <id> at <address>')
    """
    line = error.strip().partition("\n")[0][:MOST_TEXT]
    for what, mark in _MARKS:
        line = what.sub(mark, line)
    return line


def fixed_part(pattern: str) -> str | None:
    """The longest part of a pattern that each of its errors has, which a search finds; None if it is too short.

    >>> fixed_part("ConnectionRefusedError: [Errno <n>] Connect call failed ('<address>', <n>)")
    'ConnectionRefusedError: [Errno'
    >>> fixed_part("<n>")
    """
    longest = max((part.strip() for part in _MARK.split(pattern)), key=len)
    return longest if len(longest) >= LEAST_TO_SEARCH else None
