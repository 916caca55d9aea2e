"""Quoting, in an error, what somebody has sent: never so long that the error cannot be read, nor unwritable."""

from __future__ import annotations

from typing import Final

MAX_QUOTED_LENGTH: Final = 120


def quoted(value: object) -> str:
    """The repr of a value, cut when it is long; what has none is named by its type.

    >>> quoted("a.mp4"), quoted("x" * 10**6)[:20], quoted(10**5000)
    ("'a.mp4'", "'xxxxxxxxxxxxxxxxxxx", 'an int too large to write')
    """
    if isinstance(value, str | bytes | bytearray) and len(value) > MAX_QUOTED_LENGTH:
        return f"{value[:MAX_QUOTED_LENGTH]!r}… (of length {len(value)})"
    try:
        words = repr(value)
    except ValueError:  # a number of more than 4300 digits
        return f"an {type(value).__name__} too large to write"
    except Exception:  # noqa: BLE001 - a stranger's __repr__, or a list in a list in a list …
        return f"a {type(value).__name__}"
    return words if len(words) <= MAX_QUOTED_LENGTH else f"{words[:MAX_QUOTED_LENGTH]}…"
