"""Errors as the command line says them: what is wrong, and the remedy. What is not meant here stays a traceback."""

from __future__ import annotations

from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text
from sqlalchemy.exc import DBAPIError

from peerd.cli.words import plain
from peerd.config import ConfigError
from peerd.domain.errors import DatabaseAway, PeerdError
from peerd.store.faults import code_of
from peerd.supervision.control import NotRunning, Refused


class Failure(PeerdError):
    """What a command cannot do.

    Args:
        message: what is wrong.
        remedy: what to do about it.
        details: more lines, one for each thing that is wrong.
    """

    def __init__(
        self, message: str, remedy: str = "", *, kind: str = "Failure", details: list[dict[str, Any]] | None = None
    ) -> None:
        self.message = message
        self.remedy = remedy
        self.kind = kind
        self.details = details or []
        super().__init__(message)

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        answer: dict[str, Any] = {"type": self.kind, "message": self.message}
        if self.remedy:
            answer["remedy"] = self.remedy
        if self.details:
            answer["problems"] = self.details
        return answer

    def for_people(self) -> RenderableType:
        """One red line, and the remedy below it."""
        lines = [Text.assemble(("error: ", "bold red"), (plain(self.message), "red"))]
        if self.remedy:
            lines.append(Text.assemble(("  try: ", "bold"), plain(self.remedy)))
        return Group(*lines)


REFUSED_BY_MYSQL = {
    1044: "grant it: GRANT ALL ON peerd.* TO the user (docs/operations.md)",
    1045: "check the user and the password in [database], or in PEERD_DATABASE_URL",
    1049: "create it: CREATE DATABASE … (docs/operations.md), or mend the address in [database]",
    1142: "grant it: GRANT ALL ON peerd.* TO the user (docs/operations.md)",
}
AWAY = (
    ("password authentication failed", "check the user and the password in [database], or in PEERD_DATABASE_URL"),
    ('role "', "create the user (docs/operations.md), or mend it in [database]"),
    ("does not exist", "create it (docs/operations.md), or mend the address in [database]"),
    ("unable to open database file", "see that the folder is there, and that you may write in it"),
    ("", "see that it runs and that this machine reaches it; peerd doctor says more"),
)


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
        case DatabaseAway(reason=reason):
            return Failure(str(error), next(remedy for words, remedy in AWAY if words in reason), kind=kind)
        case PeerdError() | NotRunning() | Refused() | TimeoutError():
            return Failure(str(error), kind=kind)
        case DBAPIError():
            return _refusal(error)
        case _:
            return None


def _refusal(error: DBAPIError) -> Failure | None:
    code = code_of(error)
    if isinstance(code, int) and code in REFUSED_BY_MYSQL:
        words = str(error.orig.args[1]) if error.orig is not None and len(error.orig.args) > 1 else str(error.orig)
        return Failure(f"the database refuses: {words}", REFUSED_BY_MYSQL[code], kind="DatabaseRefused")
    if code == "42501":
        return Failure(
            f"the database refuses: {str(error.orig).splitlines()[0]}",
            "grant it: the user must own peerd's tables (docs/operations.md)",
            kind="DatabaseRefused",
        )
    return None
