"""How far a transfer of a file is."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[int, int | None], None]
"""Called with the bytes that were transferred so far, and all of them if they are known."""
