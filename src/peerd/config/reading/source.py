"""The values of a configuration with their origin, for the place in each problem."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from peerd.config.problems import Problem
from peerd.config.reading.toml_lines import KeyPath, find_line

MAX_SHOWN_KEY_LENGTH = 200
Overrides = Mapping[tuple[str, str], Any]


@dataclass(slots=True)
class ConfigSource:
    """The values of peerd.toml, overridden by those of the environment, and the lines of its keys.

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


def display_path(file: Path) -> str:
    """A path relative to the current folder, if it is below it."""
    here = Path.cwd()
    return str(file.relative_to(here) if file.is_relative_to(here) else file)


def merge_overrides(values: dict[str, Any], overrides: Overrides) -> dict[str, Any]:
    """The values of the file, overridden by those of the environment."""
    merged = dict(values)
    for (section, key), value in overrides.items():
        table = merged.get(section, {})
        if isinstance(table, dict):  # any other value is reported as no table
            merged[section] = {**table, key: value}
    return merged
