"""Masks the values of configured keys in JSON and in text, so that nothing that shows a task shows them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any, Final

MASKED: Final = "***"
ALWAYS_MASKED: Final = ("password", "secret")
"""Arguments of operations that are never written into the audit log."""
TOKEN_IN_TEXT: Final = re.compile(r"(peerd_[0-9a-f]{12}_)[A-Za-z0-9_-]+")
"""A token of the API, wherever it stands."""
_QUOTED: Final = r"\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'"


class Masker:
    """Masks the values of some keys, whatever the case of their letters.

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
