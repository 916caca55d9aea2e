"""Words of the command line as values: durations, times and JSON; and the options that several commands have."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Final

import msgspec
from typer import Option

from peerd.cli.errors import UsageError
from peerd.domain.task import BODY_LIMIT
from peerd.domain.units import parse_duration

AfterOption = Annotated[str | None, Option(metavar="CURSOR", help="The page behind this one's cursor.")]
LimitOption = Annotated[int, Option("--limit", "-l", help="At most this many.")]
NoWaitOption = Annotated[bool, Option("--no-wait", help="Return at once.")]
RunDirectoryOption = Annotated[
    Path | None, Option(metavar="PATH", help="The node's run directory; then peerd.toml is not read.")
]
YesOption = Annotated[bool, Option("--yes", "-y", help="Do not ask.")]
QUOTE_JSON: Final = """quote it as the shell needs it: '{"source": "a.mp4"}'"""


def parse_duration_option(option: str, duration: str) -> float:
    """The seconds of an option's duration.

    Raises:
        UsageError: it is not a duration; the message names the option.
    """
    try:
        return parse_duration(duration)
    except ValueError as error:
        raise UsageError(f"{option}: {error}") from None


def parse_time_option(option: str, text: str | None) -> datetime | None:
    """The UTC time of an option.

    >>> parse_time_option("--start-at", "2026-11-21T10:30:00+01:00")
    datetime.datetime(2026, 11, 21, 9, 30, tzinfo=datetime.timezone.utc)
    """
    if text is None:
        return None
    remedy = "write it with its zone, e.g. 2026-11-21T09:30:00Z; or use --start-in, --finish-in"
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(f"{option}: {text!r} is not a time", remedy) from None
    if found.tzinfo is None:
        raise UsageError(f"{option}: {text!r} has no time zone", remedy)
    try:
        return found.astimezone(UTC)
    except OverflowError:
        raise UsageError(f"{option}: {text!r} is too far away") from None


def parse_json(subject: str, text: str, remedy: str = QUOTE_JSON) -> object:
    """The value of a JSON text.

    Raises:
        UsageError: it is not JSON; the message names the subject.
    """
    try:
        return msgspec.json.decode(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{subject} is not JSON: {error}", remedy) from None


def read_json_body(body: str) -> str:
    """The JSON of the argument or of stdin; refused if it is invalid, before anything is written."""
    text = sys.stdin.read(BODY_LIMIT + 1) if body == "-" else body
    parse_json("the body", text, f"{QUOTE_JSON}; other text goes with --text")
    return text.strip()
