"""Where a configuration's values come from, so that each problem can name its place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from peerd.config.problems import Problem
from peerd.config.reading.toml_lines import line_of, lines_of_keys

LONGEST_KEY = 200
Overrides = Mapping[tuple[str, str], Any]
Place = tuple[str, ...]
"""The names of the tables from the outermost to the innermost, and of a key."""


@dataclass(slots=True)
class Source:
    """The values of peerd.toml with the environment's on top, and the lines that they are on."""

    folder: Path
    file: Path | None
    values: dict[str, Any]
    lines: dict[tuple[str, ...], int] = field(default_factory=dict)
    overridden: frozenset[tuple[str, ...]] = frozenset()
    left_out: frozenset[Place] = frozenset()
    """Places whose values are wrong by themselves; the settings have defaults there."""

    @classmethod
    def of_file(cls, path: Path, text: str, values: dict[str, Any], overrides: Overrides) -> Source:
        """The values of a file, overridden."""
        file = path.absolute()
        return cls(file.parent, file, _merged(values, overrides), lines_of_keys(text), frozenset(overrides))

    @classmethod
    def without_file(cls, overrides: Overrides) -> Source:
        """The values of the environment alone; paths are meant from the present folder."""
        return cls(Path.cwd(), None, _merged({}, overrides), overridden=frozenset(overrides))

    def tells(self, *places: Place) -> bool:
        """Whether the settings have what was meant at each of these places, and no default for a wrong value."""
        return not any(place[:length] in self.left_out for place in places for length in range(1, len(place) + 1))

    def names(self, section: str) -> list[str]:
        """The names of a section's tables, whatever is wrong with them."""
        tables = self.values.get(section)
        return list(tables) if isinstance(tables, dict) else []

    def gives(self, section: str, key: str) -> bool:
        """Whether a key of a section is there, and right, so that the settings have no default for it."""
        table = self.values.get(section)
        return isinstance(table, dict) and key in table and self.tells((section, key))

    def line(self, path: tuple[str, ...]) -> int | None:
        """The line of a key, or of what is nearest around it."""
        return line_of(path, self.lines)

    def problem(self, path: tuple[str, ...], message: str, remedy: str = "") -> Problem:
        """A problem at this key, placed in the file, or at the variable that overrides the key."""
        if path[:2] in self.overridden:
            return Problem("environment", None, f"PEERD_{path[0]}_{path[1]}".upper(), message, remedy)
        return Problem(self._shown_file, self.line(path), _shown_key(path), message, remedy)

    @property
    def _shown_file(self) -> str:
        if self.file is None:
            return "defaults"
        here = Path.cwd()
        return str(self.file.relative_to(here) if self.file.is_relative_to(here) else self.file)


def _shown_key(path: tuple[str, ...]) -> str:
    """A key as a person can read it, whatever it holds."""
    key = ".".join(path)
    if not key.isprintable():
        key = repr(key)
    return key if len(key) <= LONGEST_KEY else f"{key[:LONGEST_KEY]}…"


def _merged(values: dict[str, Any], overrides: Overrides) -> dict[str, Any]:
    merged = dict(values)
    for (section, key), value in overrides.items():
        table = merged.get(section, {})
        if isinstance(table, dict):  # otherwise it is reported as no table
            merged[section] = {**table, key: value}
    return merged
