"""Errors as the command line says them: what is wrong, and the remedy. What is not meant here stays a traceback."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from rich.console import Group, RenderableType
from rich.text import Text

from peerd.cli.output.formatting import sanitize
from peerd.config import ConfigError
from peerd.domain.duration import parse_duration
from peerd.domain.errors import (
    DatabaseBusy,
    DatabaseConnectionRefused,
    DatabaseUnavailable,
    InvalidArguments,
    InvalidLimit,
    InvalidSchedule,
    InvalidTask,
    PeerdError,
)
from peerd.operate.validation import InvalidFilter
from peerd.store.connection.database_errors import FREE_DISK_SPACE
from peerd.supervision.control.control_client import CommandRefused, MasterNotRunning

EXIT_USAGE: Final = 2
"""The exit status where what was typed can mean nothing, whatever the database holds; also of Typer's errors."""


USAGE_ERRORS: Final = (InvalidTask, InvalidArguments, InvalidFilter, InvalidLimit, InvalidSchedule)
"""Errors about a value that was given, which here was typed."""


class CommandError(PeerdError):
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

    def render(self) -> RenderableType:
        """One red line, and the remedy below it."""
        lines = [Text.assemble(("error: ", "bold red"), (sanitize(self.message), "red"))]
        others = [line for line in self.said if not line.endswith(self.message)]
        lines += [Text.assemble(("  │ ", "bright_black"), sanitize(line)) for line in others]
        if self.remedy:
            lines.append(Text.assemble(("  try: ", "bold"), sanitize(self.remedy)))
        return Group(*lines)


CHECK_CONNECTION: Final = "see that it runs, and that this machine reaches it at the address in [database] url"


DISK_FULL_PATTERN: Final = re.compile(r"no space left|disk is full|disk full|disk i/o error", re.IGNORECASE)
"""What servers say of it in many ways, with and without a code."""


def to_command_error(error: Exception) -> CommandError | None:
    """The failure that an error is, or None where it is a fault of ours, which deserves its traceback."""
    kind = type(error).__name__
    match error:
        case CommandError():
            return error
        case ConfigError(problems=problems):
            details = [
                {name: getattr(problem, name) for name in ("file", "line", "key", "message", "remedy")}
                for problem in problems
            ]
            return CommandError(str(error), kind=kind, details=details)
        case DatabaseConnectionRefused():
            return CommandError(f"the database refuses us: {error.reason}", error.remedy, kind=kind)
        case DatabaseUnavailable():
            return CommandError(str(error), _remedy_for(error), kind=kind)
        case PeerdError() | MasterNotRunning() | CommandRefused() | OSError():
            return CommandError(
                _message_of(error), kind=kind, status=EXIT_USAGE if isinstance(error, USAGE_ERRORS) else 1
            )
        case _:
            return None


def _remedy_for(error: DatabaseUnavailable) -> str:
    if isinstance(error, DatabaseBusy):
        return ""  # its words have it
    return FREE_DISK_SPACE if DISK_FULL_PATTERN.search(error.reason) else CHECK_CONNECTION


def _message_of(error: Exception) -> str:
    """An error's own words; the system's without its number."""
    match error:
        case OSError(strerror=str(words), filename=str(path)):
            return f"{path}: {words.lower()}"
        case _:
            return str(error)


def parse_duration_option(option: str, duration: str) -> float:
    """The seconds of a duration that was typed.

    Raises:
        Failure: it is none.
    """
    try:
        return parse_duration(duration)
    except ValueError as error:
        raise CommandError(f"{option}: {error}", status=EXIT_USAGE) from None
