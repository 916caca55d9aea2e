"""Where a configuration's values come from, so that each problem can name its place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from peerd.config.problems import Problem
from peerd.config.reading.toml_lines import find_line, index_key_lines

MAX_SHOWN_KEY_LENGTH = 200
Overrides = Mapping[tuple[str, str], Any]
KeyPath = tuple[str, ...]
"""The names of the tables from the outermost to the innermost, and of a key."""


@dataclass(slots=True)
class ConfigSource:
    """The values of peerd.toml with the environment's on top, and the lines that they are on."""

    folder: Path
    file: Path | None
    values: dict[str, Any]
    lines: dict[tuple[str, ...], int] = field(default_factory=dict)
    overridden: frozenset[tuple[str, ...]] = frozenset()
    invalid_keys: frozenset[KeyPath] = frozenset()
    """Places whose values are wrong by themselves; the settings have defaults there."""

    @classmethod
    def from_file(cls, path: Path, text: str, values: dict[str, Any], overrides: Overrides) -> ConfigSource:
        """The values of a file, overridden."""
        file = path.absolute()
        return cls(file.parent, file, _merge(values, overrides), index_key_lines(text), frozenset(overrides))

    @classmethod
    def from_environment(cls, overrides: Overrides) -> ConfigSource:
        """The values of the environment alone; paths are meant from the present folder."""
        return cls(Path.cwd(), None, _merge({}, overrides), overridden=frozenset(overrides))

    def has_valid(self, *key_paths: KeyPath) -> bool:
        """Whether the settings have what was meant at each of these places, and no default for a wrong value."""
        return not any(
            place[:length] in self.invalid_keys for place in key_paths for length in range(1, len(place) + 1)
        )

    def table_names(self, section: str) -> list[str]:
        """The names of a section's tables, whatever is wrong with them."""
        tables = self.values.get(section)
        return list(tables) if isinstance(tables, dict) else []

    def is_set(self, section: str, key: str) -> bool:
        """Whether a key of a section is there, and right, so that the settings have no default for it."""
        table = self.values.get(section)
        return isinstance(table, dict) and key in table and self.has_valid((section, key))

    def line(self, path: tuple[str, ...]) -> int | None:
        """The line of a key, or of what is nearest around it."""
        return find_line(path, self.lines)

    def problem(self, path: tuple[str, ...], message: str, remedy: str = "") -> Problem:
        """A problem at this key, placed in the file, or at the variable that overrides the key."""
        if path[:2] in self.overridden:
            return Problem("environment", None, f"PEERD_{path[0]}_{path[1]}".upper(), message, remedy)
        return Problem(self._display_file, self.line(path), _display_key(path), message, remedy)

    @property
    def _display_file(self) -> str:
        if self.file is None:
            return "defaults"
        here = Path.cwd()
        return str(self.file.relative_to(here) if self.file.is_relative_to(here) else self.file)


def _display_key(path: tuple[str, ...]) -> str:
    """A key as a person can read it, whatever it holds."""
    key = ".".join(path)
    if not key.isprintable():
        key = repr(key)
    return key if len(key) <= MAX_SHOWN_KEY_LENGTH else f"{key[:MAX_SHOWN_KEY_LENGTH]}…"


def _merge(values: dict[str, Any], overrides: Overrides) -> dict[str, Any]:
    merged = dict(values)
    for (section, key), value in overrides.items():
        table = merged.get(section, {})
        if isinstance(table, dict):  # otherwise it is reported as no table
            merged[section] = {**table, key: value}
    return merged
