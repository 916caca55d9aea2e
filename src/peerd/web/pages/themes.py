"""Light and dark: as the viewer's system has it, or as the viewer has chosen."""

from __future__ import annotations

from typing import Final

from starlette.requests import Request

COOKIE: Final = "peerd_theme"
THEMES: Final = ("system", "light", "dark")
MAX_AGE: Final = 365 * 86_400
"""Seconds."""


def theme_of(request: Request) -> str:
    """The theme that was chosen; `system` where none was."""
    chosen = request.cookies.get(COOKIE, "")
    return chosen if chosen in THEMES else THEMES[0]
