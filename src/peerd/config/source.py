"""The values of a configuration with their origin, for the place in each problem: a line of peerd.toml, or a variable.

Neither tomllib nor another dependency reports line numbers. So this module finds where each statement of the file
begins; tomllib parses the statement.

The variable PEERD_<SECTION>_<KEY> overrides the key of peerd.toml. Only the sections of `SECTIONS` have
such variables: names of other tables may hold any character.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, get_type_hints

from peerd.config.problems import KeyPath, Problem, did_you_mean
from peerd.config.section import Section
from peerd.config.settings import Document

CONFIG_VARIABLE = "PEERD_CONFIG"

_VARIABLES_OF: Final = ("node", "database", "cluster", "manager", "statistics", "logging", "telemetry")
SECTIONS: Final[Mapping[str, type[Section]]] = {
    name: kind for name, kind in get_type_hints(Document).items() if name in _VARIABLES_OF
}
"""The sections whose keys have variables."""
MAX_SHOWN_KEY_LENGTH = 200


@dataclass(slots=True)
class ConfigSource:
    """The values of peerd.toml, overridden by the environment, and the lines of its keys.

    `invalid_keys` are those whose values are wrong by themselves; the settings have defaults for them.
    """

    folder: Path
    file: Path | None
    values: dict[str, Any]
    lines: dict[KeyPath, int] = field(default_factory=dict)
    overridden: frozenset[KeyPath] = frozenset()
    invalid_keys: frozenset[KeyPath] = frozenset()

    def has_valid(self, *key_paths: KeyPath) -> bool:
        """Whether no value at these places is wrong, so that the settings have no default for it."""
        return not any(path[:length] in self.invalid_keys for path in key_paths for length in range(1, len(path) + 1))

    def table_names(self, section: str) -> list[str]:
        """The names of a section's tables, valid or not."""
        tables = self.values.get(section)
        return list(tables) if isinstance(tables, dict) else []

    def is_set(self, section: str, key: str) -> bool:
        """Whether a key of a section is given and valid, so that the settings have no default for it."""
        table = self.values.get(section)
        return isinstance(table, dict) and key in table and self.has_valid((section, key))

    def problem(self, path: KeyPath, message: str, remedy: str = "") -> Problem:
        """A problem at this key: in the file, or at the variable that overrides it."""
        if path[:2] in self.overridden:
            return Problem("environment", None, f"PEERD_{path[0]}_{path[1]}".upper(), message, remedy)
        key = ".".join(path)
        if not key.isprintable():
            key = repr(key)
        if len(key) > MAX_SHOWN_KEY_LENGTH:
            key = f"{key[:MAX_SHOWN_KEY_LENGTH]}…"
        file = "defaults" if self.file is None else display_path(self.file)
        return Problem(file, find_line(path, self.lines), key, message, remedy)


def current_folder(environment: Mapping[str, str] = os.environ) -> Path:
    """The current folder, by the name by which the shell has entered it, with its symbolic links.

    A link such as `current` names the same project after it was switched to another folder.
    """
    named = Path(environment.get("PWD", ""))
    with suppress(OSError, ValueError):
        if named.is_absolute() and ".." not in named.parts and named.samefile("."):
            return named
    return Path.cwd()


def display_path(file: Path) -> str:
    """A path relative to the current folder, if it is below it."""
    here = current_folder()
    return str(file.relative_to(here) if file.is_relative_to(here) else file)


def setting_variables() -> dict[str, tuple[str, str]]:
    """Every variable that overrides a setting, with the section and the key that it overrides."""
    return {
        f"PEERD_{section}_{key}".upper(): (section, key)
        for section, kind in SECTIONS.items()
        for key in kind.known_keys()
    }


def read_overrides(environment: Mapping[str, str]) -> dict[tuple[str, str], Any]:
    """The settings that the environment gives, by section and key."""
    return {
        key_path: _parse_value(environment[variable], *key_path)
        for variable, key_path in setting_variables().items()
        if variable in environment
    }


def find_unknown_variables(environment: Mapping[str, str]) -> list[Problem]:
    """Variables that look like an override, and override nothing."""
    known = setting_variables()
    prefixes = tuple(f"PEERD_{section}_".upper() for section in SECTIONS)
    return [
        Problem("environment", None, name, "overrides no setting", did_you_mean(name, known))
        for name in sorted(environment)
        if name.startswith(prefixes) and name not in known
    ]


def _parse_value(text: str, section: str, key: str) -> Any:
    """A whole number, true or false where the setting is one; all other types are parsed from text."""
    kind, word = get_type_hints(SECTIONS[section])[key], text.strip()
    if kind is bool and word in {"true", "false"}:
        return word == "true"
    return int(word) if kind is int and word.isdecimal() and len(text) < 100 else text


def merge_overrides(values: dict[str, Any], overrides: Mapping[tuple[str, str], Any]) -> dict[str, Any]:
    """The values of the file, overridden by the environment."""
    merged = dict(values)
    for (section, key), value in overrides.items():
        table = merged.get(section, {})
        if isinstance(table, dict):  # any other value is reported as no table
            merged[section] = {**table, key: value}
    return merged


_TOKEN: Final = re.compile(
    r"""\"{3}(?:[^\\]|\\.)*?\"{3,5} | '{3}.*?'{3,5} | "(?:[^"\\\n]|\\.)*" | '[^'\n]*' | \#[^\n]* | [\[\]{}\n]""",
    re.VERBOSE | re.DOTALL,
)
"""A string, a comment, a bracket, or the end of a line."""


def index_key_lines(text: str) -> dict[KeyPath, int]:
    r"""The line, from 1, of the first mention of each key path and table of a valid TOML text.

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
    """The line of a key, else of the nearest table or value around it, else None."""
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
