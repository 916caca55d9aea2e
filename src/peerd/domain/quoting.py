"""Quotes, escapes and masks text of users for errors, the log, the terminal and pages.

Input of users ends up in error texts and tracebacks, and so in the log. Control characters, also those of 8 bits (C1),
those that change the direction of writing, and those without a width are escaped; further lines are indented, so that
they cannot look like entries of the log. The values of configured keys are masked, in JSON and in text, so that nothing
that shows a task shows them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any, Final

MAX_QUOTED_LENGTH: Final = 120
UNSAFE_CHARACTERS: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]"
)
"""Control characters except tabulators and \\n; other line ends are escaped, so that there is only one kind."""


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


def escape_text(text: str) -> str:
    r"""The text with unsafe characters as escapes, except tabulators and line ends.

    >>> print(escape_text("red \x1b[31m, \x9b, \u202e, \u200b"))
    red \x1b[31m, \x9b, \u202e, \u200b
    """
    return UNSAFE_CHARACTERS.sub(_escape_character, text)


def escape_line(text: str) -> str:
    r"""The text with unsafe characters and line ends as escapes.

    >>> print(escape_line("it failed\n12:00:00.1 [info] all is well"))
    it failed\n12:00:00.1 [info] all is well
    """
    return escape_text(text).replace("\n", "\\n")


def escape_and_indent(text: str) -> str:
    r"""The text with unsafe characters as escapes, and each line indented, as a continuation of the line above.

    >>> escape_and_indent("Traceback\n  File …\n")
    '    Traceback\n      File …'
    """
    return "\n".join(f"    {line}" for line in escape_text(text).rstrip("\n").split("\n"))


def _escape_character(found: re.Match[str]) -> str:
    number = ord(found[0])
    return f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}"


# ---------------------------------------------------------------- masking


MASKED: Final = "***"
ALWAYS_MASKED: Final = ("password", "secret")
"""Arguments of operations that are never written into the audit log."""
TOKEN_IN_TEXT: Final = re.compile(r"(peerd_[0-9a-f]{12}_)[A-Za-z0-9_-]+")
"""A token of the API, wherever it stands."""
_QUOTED: Final = r"\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'"


class Masker:
    """Masks the values of some keys, in which upper and lower case are alike.

    Args:
        keys: their names; each is compared as a whole.

    >>> masker = Masker(["password"])
    >>> masker.json_text('{"user": "ann", "login": {"Password": ["a", "b"]}, "passwords": 2}')
    '{"user":"ann","login":{"Password":"***"},"passwords":2}'
    >>> masker.text("connect failed: password=hunter2, 'password': 'a b', nopassword=1")
    "connect failed: password=***, 'password': ***, nopassword=1"
    """

    def __init__(self, keys: Iterable[str] = ()) -> None:
        self.keys = frozenset(key.casefold() for key in keys)
        names = "|".join(re.escape(key) for key in sorted(self.keys, key=len, reverse=True))
        pattern = rf"(?<![\w-])((?:\\?[\"'])?(?:{names})(?:\\?[\"'])?\s*[=:]\s*)({_QUOTED}|[^\s,;&)}}\]]+)"
        self._pattern = re.compile(pattern, re.IGNORECASE) if self.keys else None

    def __bool__(self) -> bool:
        """Whether there are keys."""
        return bool(self.keys)

    def value(self, value: Any) -> Any:
        """A value made of dictionaries, lists and scalars; texts in it are masked as texts."""
        match value:
            case dict():
                return {
                    key: MASKED if str(key).casefold() in self.keys else self.value(inner)
                    for key, inner in value.items()
                }
            case list() | tuple():
                return [self.value(inner) for inner in value]
            case str():
                return self.json_text(value)
            case _:
                return value

    def text(self, text: str) -> str:
        """A text for people: what follows such a key and ``=`` or ``:``."""
        return text if self._pattern is None else self._pattern.sub(rf"\1{MASKED}", text)

    def json_text(self, text: str) -> str:
        """A text that is an object or a list of JSON, without spaces; any other one as `text` masks it."""
        if not self.keys or text.lstrip()[:1] not in {"{", "["}:
            return self.text(text)
        try:
            decoded = json.loads(text)
            masked = self.value(decoded)
        except (ValueError, RecursionError):
            return self.text(text)
        return text if masked == decoded else json.dumps(masked, ensure_ascii=False, separators=(",", ":"))

    def bytes(self, content: bytes) -> bytes:
        """Bytes, if they are text; others as they are."""
        try:
            text = content.decode()
        except UnicodeDecodeError:
            return content
        masked = self.json_text(text)
        return content if masked == text else masked.encode()


def without_tokens(text: str) -> str:
    """A text in which no token of the API has its secret.

    >>> without_tokens("GET /api/v1/tokens/peerd_0123456789ab_c2VjcmV0")
    'GET /api/v1/tokens/peerd_0123456789ab_***'
    """
    return TOKEN_IN_TEXT.sub(rf"\1{MASKED}", text)
