"""A body given as JSON on the command line."""

from __future__ import annotations

import sys

import msgspec

from peerd.cli.errors import EXIT_USAGE, CommandError
from peerd.domain.task import BODY_LIMIT


def read_json_body(body: str) -> str:
    """The JSON of the argument or of stdin; refused if it is invalid, before anything is written."""
    text = sys.stdin.read(BODY_LIMIT + 1) if body == "-" else body
    try:
        msgspec.json.decode(text)
    except (ValueError, RecursionError) as error:
        raise CommandError(
            f"the body is not JSON: {error}",
            """quote it as the shell needs it: '{"source": "a.mp4"}'; other text goes with --text""",
            status=EXIT_USAGE,
        ) from None
    return text.strip()
