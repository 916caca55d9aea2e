r"""Escapes text for the log, the terminal and pages.

Input of users ends up in error texts and tracebacks, and so in the log. Control characters, also those of 8 bits (C1),
those that change the direction of writing, and those without a width are escaped; further lines are indented, so that
they cannot look like entries of the log.
"""

from __future__ import annotations

import re
from typing import Final

UNSAFE_CHARACTERS: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]"
)
"""Control characters except tabulators and \\n; other line ends are escaped, so that there is only one kind."""


def escape_text(text: str) -> str:
    r"""The text with unsafe characters as escapes, except tabulators and line ends.

    >>> print(escape_text("red \x1b[31m, \x9b, \u202e, \u200b"))
    red \x1b[31m, \x9b, \u202e, \u200b
    """
    return UNSAFE_CHARACTERS.sub(_escaped, text)


def escape_line(text: str) -> str:
    r"""The text with unsafe characters and line ends as escapes.

    >>> print(escape_line("it failed\n12:00:00.1 [info] all is well"))
    it failed\n12:00:00.1 [info] all is well
    """
    return escape_text(text).replace("\n", "\\n")


def escape_and_indent(text: str) -> str:
    r"""As `escape_text`, with each line indented, as a continuation of the line above.

    >>> escape_and_indent("Traceback\n  File …\n")
    '    Traceback\n      File …'
    """
    return "\n".join(f"    {line}" for line in escape_text(text).rstrip("\n").split("\n"))


def _escaped(found: re.Match[str]) -> str:
    number = ord(found[0])
    return f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}"
