"""Problems of a configuration, each with its place, its message and its remedy, such as a similar known word."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from peerd.domain.errors import PeerdError

KeyPath = tuple[str, ...]
"""The names of the tables from the outermost to the innermost, and of a key."""


@dataclass(frozen=True, slots=True)
class Problem:
    """A mistake or a warning.

    `file` is a path or 'environment'; `line` counts from 1 and is None where there is none; `key` is dotted.
    """

    file: str
    line: int | None
    key: str
    message: str
    remedy: str = ""

    def __str__(self) -> str:
        """A line, as compilers write it: `peerd.toml:12: workers.video.count: what is wrong; the remedy`."""
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


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """The remedy for an unknown word: a similar known word, else all known words.

    >>> did_you_mean("wokers", ["node", "workers"])
    "did you mean 'workers'?"
    """
    words = sorted(known)
    return suggest_similar(word, words) or f"known are {', '.join(words)}"


def suggest_similar(word: str, known: Iterable[str]) -> str:
    """The remedy for a word that may be mistyped: a similar known word, or nothing.

    >>> suggest_similar("vidoe", ["video"]), suggest_similar("mail", ["video"])
    ("did you mean 'video'?", '')
    """
    from difflib import get_close_matches  # noqa: PLC0415 - loaded for a mistyped word alone

    found = get_close_matches(word[:100], sorted(known), n=1, cutoff=0.6)
    return f"did you mean {found[0]!r}?" if found else ""
