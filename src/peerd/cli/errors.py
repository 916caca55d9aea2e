"""Errors as the command line prints them: the cause, then the remedy. Any other exception keeps its traceback."""

from __future__ import annotations

import re
import traceback
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field
from tempfile import NamedTemporaryFile
from typing import Any, Final

from rich.console import Group, RenderableType
from rich.text import Text
from sqlalchemy.exc import DBAPIError

from peerd.cli.output import sanitize
from peerd.config import ConfigError
from peerd.domain.errors import (
    DatabaseBusy,
    DatabaseRefused,
    DatabaseUnavailable,
    InvalidArguments,
    InvalidField,
    PeerdError,
)
from peerd.operate.remote.errors import InvalidServer
from peerd.store.connection.database_errors import FREE_DISK_SPACE, driver_message
from peerd.supervision.control_client import CommandRefused, MasterNotRunning

EXIT_USAGE: Final = 2
"""The exit status of an argument that no database could make valid; Typer's errors have it too."""
USAGE_ERRORS: Final = (InvalidField, InvalidArguments, InvalidServer)
SEE_TRACEBACK: Final = "again with --traceback, which prints the whole of it"
CHECK_CONNECTION: Final = "see that it runs, and that this machine reaches it"
DISK_FULL_PATTERN: Final = re.compile(r"no space left|disk is full|disk full|disk i/o error", re.IGNORECASE)
"""The ways in which the database servers report it, with and without an error code."""


@dataclass(eq=False)
class CommandError(PeerdError):
    """A command failed.

    Attributes:
        message: the cause.
        remedy: what to do about it.
        kind: the type in JSON.
        details: further problems, for JSON.
        log_tail: the last lines of a log that shows the cause.
        status: the exit status.
    """

    message: str
    remedy: str = ""
    _: KW_ONLY
    kind: str = "Failure"
    details: Sequence[dict[str, Any]] = ()
    log_tail: Sequence[str] = ()
    status: int = 1

    def __str__(self) -> str:
        return self.message

    def as_json(self) -> dict[str, Any]:
        """For JSON; empty parts are left out."""
        optional = {"remedy": self.remedy, "problems": self.details, "log": self.log_tail}
        return {"type": self.kind, "message": self.message} | {key: value for key, value in optional.items() if value}

    def render(self) -> RenderableType:
        """The message in red, the end of the log, and the remedy."""
        lines = [Text.assemble(("error: ", "bold red"), (sanitize(self.message), "red"))]
        others = [line for line in self.log_tail if not line.endswith(self.message)]
        lines += [Text.assemble(("  │ ", "bright_black"), sanitize(line)) for line in others]
        if self.remedy:
            lines.append(Text.assemble(("  try: ", "bold"), sanitize(self.remedy)))
        return Group(*lines)


@dataclass(eq=False)
class UsageError(CommandError):
    """An argument is invalid; no database could make it valid."""

    status: int = field(default=EXIT_USAGE, init=False)


def to_command_error(error: Exception) -> CommandError | None:
    """An expected error with its remedy and exit status; None for an unexpected one, which keeps its traceback."""
    kind = type(error).__name__
    match error:
        case CommandError():
            return error
        case ConfigError(problems=problems):
            keys = ("file", "line", "key", "message", "remedy")
            details = [{key: getattr(problem, key) for key in keys} for problem in problems]
            return CommandError(str(error), kind=kind, details=details)
        case DatabaseUnavailable() | DBAPIError():
            return _database_error(error, kind)
        case OSError(strerror=str(reason), filename=str(path)):
            return CommandError(f"{path}: {reason.lower()}", kind=kind)
        case PeerdError() | MasterNotRunning() | CommandRefused() | OSError():
            return CommandError(str(error), kind=kind, status=EXIT_USAGE if isinstance(error, USAGE_ERRORS) else 1)
        case _:
            return None


def _database_error(error: DatabaseUnavailable | DBAPIError, kind: str) -> CommandError:
    match error:
        case DBAPIError(statement=statement):
            [verb, *_] = (statement or "statement").split()
            message = f"the database refuses {verb.upper()}: {driver_message(error)}"
            return CommandError(message, SEE_TRACEBACK, kind=kind)
        case DatabaseRefused():
            return CommandError(f"the database refuses this: {error.reason}", error.remedy, kind=kind)
        case DatabaseBusy():  # its message has the remedy
            return CommandError(str(error), kind=kind)
        case _:
            remedy = FREE_DISK_SPACE if DISK_FULL_PATTERN.search(error.reason) else CHECK_CONNECTION
            return CommandError(str(error), remedy, kind=kind)


def keep_traceback(error: Exception) -> str:
    """Write an error with its traceback to a file of its own, which its user alone can read.

    Returns:
        where it is, as a remedy; `SEE_TRACEBACK` if it cannot be written.
    """
    try:
        with NamedTemporaryFile("w", prefix="peerd-error-", suffix=".txt", delete=False, errors="replace") as file:
            file.writelines(traceback.format_exception(error))
    except OSError:
        return SEE_TRACEBACK
    return f"{file.name}, which has the whole of it; --traceback prints it"
