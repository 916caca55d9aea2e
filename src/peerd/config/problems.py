"""Problems of a configuration, each with its place, its message and its remedy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from peerd.domain.errors import PeerdError


@dataclass(frozen=True, slots=True)
class Problem:
    """One mistake or warning.

    `file` is a path or 'environment'; `line` counts from 1 and is None where there is none; `key` is dotted.
    """

    file: str
    line: int | None
    key: str
    message: str
    remedy: str = ""

    def __str__(self) -> str:
        """One line, as compilers write it: `peerd.toml:12: workers.video.count: what is wrong; the remedy`."""
        place = self.file if self.line is None else f"{self.file}:{self.line}"
        sentence = ": ".join(part for part in (place, self.key, self.message) if part)
        return f"{sentence}; {self.remedy}" if self.remedy else sentence


class ConfigError(PeerdError):
    """The configuration is invalid; `problems` are all of its mistakes."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__(problems)
        self.problems = list(problems)

    def __str__(self) -> str:
        """All problems, one a line."""
        return "\n".join(str(problem) for problem in self.problems)
