"""Find the line of each key in a TOML text: the standard library's parser does not tell it.

Only texts that parse are asked about, so this reader may be lenient: it knows what separates keys from values,
and nothing about values.
"""

from __future__ import annotations

import re
import tomllib
from typing import Final

KeyPath = tuple[str, ...]

_KEY = re.compile(r"""\s*(?P<part>"(?:[^"\\\n]|\\.)*"|'[^'\n]*'|[A-Za-z0-9_-]+)\s*(?P<then>[.=\]]?)""")
_BLANK = re.compile(r"(?:\s+|#[^\n]*)*")
_STRING_OR_COMMENT: Final = re.compile(
    r"""\"{3}(?:[^\\]|\\.)*?\"{3,5} | '{3}.*?'{3,5} | "(?:[^"\\\n]|\\.)*" | '[^'\n]*' | \#[^\n]*""",
    re.VERBOSE | re.DOTALL,
)


def index_key_lines(text: str) -> dict[KeyPath, int]:
    r"""The line, from 1, of the first mention of each key path and table of the text.

    >>> index_key_lines("[node]\nname = 'a'\n")
    {('node',): 1, ('node', 'name'): 2}
    """
    lines: dict[KeyPath, int] = {}
    table: KeyPath = ()
    position = _skip_blank(text, 0)
    line, counted = 1, 0
    while position < len(text):
        line, counted = line + text.count("\n", counted, position), position
        if text[position] == "[":
            table, position = _read_key(text, position + (2 if text.startswith("[[", position) else 1))
            path = table
            position = _end_of_line(text, position)
        else:
            key, position = _read_key(text, position)
            path = table + key
            position = _end_of_value(text, position)
        for length in range(1, len(path) + 1):
            lines.setdefault(path[:length], line)
        position = _skip_blank(text, position)
    return lines


def find_line(path: KeyPath, lines: dict[KeyPath, int]) -> int | None:
    """The line of a key, else that of the nearest table or value around it, else None."""
    for length in range(len(path), 0, -1):
        if path[:length] in lines:
            return lines[path[:length]]
    return None


def _read_key(text: str, position: int) -> tuple[KeyPath, int]:
    parts: list[str] = []
    while found := _KEY.match(text, position):
        parts.append(_unquote(found["part"]))
        position = found.end()
        if found["then"] != ".":
            break
    return tuple(parts), position if parts else position + 1


def _unquote(part: str) -> str:
    if part[0] not in "\"'":
        return part
    return str(tomllib.loads(f"key = {part}")["key"])


def _end_of_value(text: str, position: int) -> int:
    depth = 0
    while position < len(text):
        if skipped := _STRING_OR_COMMENT.match(text, position):
            position = skipped.end()
            continue
        character = text[position]
        if character == "\n" and depth == 0:
            return position
        depth += (character in "[{") - (character in "]}")
        position += 1
    return position


def _end_of_line(text: str, position: int) -> int:
    end = text.find("\n", position)
    return len(text) if end < 0 else end


def _skip_blank(text: str, position: int) -> int:
    found = _BLANK.match(text, position)
    return found.end() if found else position
