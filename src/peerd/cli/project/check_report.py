"""The findings of `peerd check`, with their lines in peerd.toml."""

from __future__ import annotations

from peerd.config import Settings
from peerd.config.loading import Check
from peerd.config.problems import KeyPath, Problem
from peerd.config.source import display_path, find_line, index_key_lines


class ConfigReport:
    """Problems, warnings, and checks that passed.

    Args:
        configuration: the findings of the configuration's reader.
        settings: the settings that are checked.
    """

    def __init__(self, configuration: Check, settings: Settings | None) -> None:
        self.problems = list(configuration.problems)
        self.warnings = list(configuration.warnings)
        self.passed: list[tuple[str, str]] = []
        self._file = None if settings is None else settings.file
        self._lines = {} if self._file is None else index_key_lines(self._file.read_text(encoding="utf-8"))

    def add_problem(self, key_path: KeyPath, message: str, remedy: str = "") -> None:
        """Add a problem of a key."""
        self.problems.append(self._problem(key_path, message, remedy))

    def add_warning(self, key_path: KeyPath, message: str, remedy: str = "") -> None:
        """Add a value of a key that is allowed, but probably a mistake."""
        self.warnings.append(self._problem(key_path, message, remedy))

    def has_problem_in(self, section: str) -> bool:
        """Whether a section has a problem, in the file or in the environment."""
        names = (f"{section}.", f"PEERD_{section}_".upper())
        return any(f"{problem.key}.".startswith(names) for problem in self.problems)

    def sort(self) -> None:
        """Sort them in the order of the file."""
        for problems in (self.problems, self.warnings):
            problems.sort(key=lambda problem: (problem.file, problem.line or 0, problem.key))

    def _problem(self, key_path: KeyPath, message: str, remedy: str) -> Problem:
        file = "environment" if self._file is None else display_path(self._file)
        return Problem(file, find_line(key_path, self._lines), ".".join(key_path), message, remedy)
