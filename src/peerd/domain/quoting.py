"""Quotes a value in an error text: bounded in length, and always writable."""

from __future__ import annotations

from typing import Final

MAX_QUOTED_LENGTH: Final = 120


def quoted(value: object) -> str:
    """The repr of a value, cut when it is long; a value without one is named by its type.

    >>> quoted("a.mp4"), quoted("x" * 10**6)[:20], quoted(10**5000)
    ("'a.mp4'", "'xxxxxxxxxxxxxxxxxxx", 'an int too large to write')
    """
    if isinstance(value, str | bytes | bytearray) and len(value) > MAX_QUOTED_LENGTH:
        return f"{value[:MAX_QUOTED_LENGTH]!r}… (of length {len(value)})"
    try:
        text = repr(value)
    except ValueError:  # a number of more than 4300 digits
        return f"an {type(value).__name__} too large to write"
    except Exception:  # noqa: BLE001 - a user's __repr__, or a deeply nested list
        return f"a {type(value).__name__}"
    return text if len(text) <= MAX_QUOTED_LENGTH else f"{text[:MAX_QUOTED_LENGTH]}…"
