"""Errors as the command line says them: what is wrong, and the remedy. What is not meant here stays a traceback."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from rich.console import Group, RenderableType
from rich.text import Text

from peerd.cli.output.formatting import plain
from peerd.config import ConfigError
from peerd.domain.duration import parse_duration
from peerd.domain.errors import (
    DatabaseAway,
    DatabaseBusy,
    DatabaseRefused,
    InvalidArguments,
    InvalidLimit,
    InvalidSchedule,
    InvalidTask,
    PeerdError,
)
from peerd.operate.validation import InvalidFilter
from peerd.store.connection.database_errors import FREE_SPACE
from peerd.supervision.control.control_client import NotRunning, Refused

WRONG_USAGE: Final = 2
"""The exit status where what was typed can mean nothing, whatever the database holds; also of Typer's errors."""


OF_USAGE: Final = (InvalidTask, InvalidArguments, InvalidFilter, InvalidLimit, InvalidSchedule)
"""Errors about a value that was given, which here was typed."""


class Failure(PeerdError):
    """What a command cannot do.

    Args:
        message: what is wrong.
        remedy: what to do about it.
        details: more lines, one for each thing that is wrong.
        said: the last lines of a log that tells of it.
        status: the exit status that it leads to.
    """

    def __init__(
        self,
        message: str,
        remedy: str = "",
        *,
        kind: str = "Failure",
        details: list[dict[str, Any]] | None = None,
        said: Sequence[str] = (),
        status: int = 1,
    ) -> None:
        self.message = message
        self.remedy = remedy
        self.kind = kind
        self.details = details or []
        self.said = said
        self.status = status
        super().__init__(message)

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        answer: dict[str, Any] = {"type": self.kind, "message": self.message}
        if self.remedy:
            answer["remedy"] = self.remedy
        if self.details:
            answer["problems"] = self.details
        if self.said:
            answer["log"] = list(self.said)
        return answer

    def for_people(self) -> RenderableType:
        """One red line, and the remedy below it."""
        lines = [Text.assemble(("error: ", "bold red"), (plain(self.message), "red"))]
        others = [line for line in self.said if not line.endswith(self.message)]
        lines += [Text.assemble(("  │ ", "bright_black"), plain(line)) for line in others]
        if self.remedy:
            lines.append(Text.assemble(("  try: ", "bold"), plain(self.remedy)))
        return Group(*lines)


REACH_IT: Final = "see that it runs, and that this machine reaches it at the address in [database] url"


DISK_IS_FULL: Final = re.compile(r"no space left|disk is full|disk full|disk i/o error", re.IGNORECASE)
"""What servers say of it in many ways, with and without a code."""


def failure_of(error: Exception) -> Failure | None:
    """The failure that an error is, or None where it is a fault of ours, which deserves its traceback."""
    kind = type(error).__name__
    match error:
        case Failure():
            return error
        case ConfigError(problems=problems):
            details = [
                {name: getattr(problem, name) for name in ("file", "line", "key", "message", "remedy")}
                for problem in problems
            ]
            return Failure(str(error), kind=kind, details=details)
        case DatabaseRefused():
            return Failure(f"the database refuses us: {error.reason}", error.remedy, kind=kind)
        case DatabaseAway():
            return Failure(str(error), _remedy_for(error), kind=kind)
        case PeerdError() | NotRunning() | Refused() | OSError():
            return Failure(_sentence(error), kind=kind, status=WRONG_USAGE if isinstance(error, OF_USAGE) else 1)
        case _:
            return None


def _remedy_for(error: DatabaseAway) -> str:
    if isinstance(error, DatabaseBusy):
        return ""  # its words have it
    return FREE_SPACE if DISK_IS_FULL.search(error.reason) else REACH_IT


def _sentence(error: Exception) -> str:
    """An error's own words; the system's without its number."""
    match error:
        case OSError(strerror=str(words), filename=str(path)):
            return f"{path}: {words.lower()}"
        case _:
            return str(error)


def seconds_of(option: str, duration: str) -> float:
    """The seconds of a duration that was typed.

    Raises:
        Failure: it is none.
    """
    try:
        return parse_duration(duration)
    except ValueError as error:
        raise Failure(f"{option}: {error}", status=WRONG_USAGE) from None
