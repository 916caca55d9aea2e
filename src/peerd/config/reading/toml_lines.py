"""Finds the line of each key in a TOML text.

Neither tomllib nor another dependency reports line numbers. This module only finds where each statement begins;
tomllib parses the statement. The text must be valid TOML.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from typing import Any, Final

KeyPath = tuple[str, ...]
"""The names of the tables from the outermost to the innermost, and of a key."""

_TOKEN: Final = re.compile(
    r"""\"{3}(?:[^\\]|\\.)*?\"{3,5} | '{3}.*?'{3,5} | "(?:[^"\\\n]|\\.)*" | '[^'\n]*' | \#[^\n]* | [\[\]{}\n]""",
    re.VERBOSE | re.DOTALL,
)
"""A string, a comment, a bracket, or the end of a line."""


def index_key_lines(text: str) -> dict[KeyPath, int]:
    r"""The line, from 1, of the first mention of each key path and table of the text.

    >>> index_key_lines("[node]\nname = 'a'\n")
    {('node',): 1, ('node', 'name'): 2}
    """
    lines: dict[KeyPath, int] = {}
    table: KeyPath = ()
    for line, statement in _statements(text):
        is_table = statement.startswith("[")
        path = () if is_table else table
        content: Any = tomllib.loads(statement)
        while isinstance(content, dict) and content:
            key, content = next(iter(content.items()))
            path = (*path, key)
            lines.setdefault(path, line)
        if is_table:
            table = path
    return lines


def find_line(path: KeyPath, lines: dict[KeyPath, int]) -> int | None:
    """The line of a key, else that of the nearest table or value around it, else None."""
    return next((lines[path[:length]] for length in range(len(path), 0, -1) if path[:length] in lines), None)


def _statements(text: str) -> Iterator[tuple[int, str]]:
    """Each header of a table, each key with its value, and each comment, with its first line."""
    line, begin, depth = 1, 0, 0
    for token in _TOKEN.finditer(text + "\n"):
        depth += (token[0] in "[{") - (token[0] in "]}")
        if token[0] == "\n" and depth == 0:
            statement = text[begin : token.start()]
            yield line, statement.strip()
            line, begin = line + statement.count("\n") + 1, token.end()
