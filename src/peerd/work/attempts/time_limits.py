"""The time that an attempt has, and why a running one is told to end."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from peerd.domain.duration import format_duration


class StopReason(StrEnum):
    """Why a running attempt is told to end."""

    TIMEOUT = "timeout"
    FINISH_AT = "finish_at"
    HOOK = "hook"
    LOST = "lost"
    STOPPING = "stopping"


class TimeLimits(NamedTuple):
    """Seconds that an attempt has. None is no limit."""

    timeout: float | None = None
    until_finish: float | None = None
    """Until the row's finish_at."""
    timeout_grace: float = 0.0
    """To return, after either of them."""
    hook_timeout: float | None = None
    """For the hooks before it together, and for those after it."""

    @property
    def timeout_text(self) -> str:
        """In words."""
        return f"its timeout of {format_duration(self.timeout or 0.0)}"

    @property
    def hook_timeout_text(self) -> str:
        """In words."""
        return f"its hook_timeout of {format_duration(self.hook_timeout or 0.0)}"

    def hard_limit_text(self, stop_reason: StopReason | None) -> str:
        """The limit that code has not kept which was told to end, and goes on; in words."""
        match stop_reason:
            case StopReason.FINISH_AT:
                after = "its finish_at"
            case StopReason.HOOK:
                after = self.hook_timeout_text
            case _:
                after = self.timeout_text
        return f"did not return within {format_duration(self.timeout_grace)} after {after}"
