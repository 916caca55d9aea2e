"""The messages between the agent and a worker process about a run of a schedule."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

import msgspec

from peerd.domain.schedule import RunStatus

RUN_ACTION: Final = "peerd.schedules.run"
"""The action of a `RunRequest`; the reply says whether it is accepted, before the run begins."""
REPORT_ACTION: Final = "peerd.schedules.ended"
"""The action of a `RunReport`; the reply comes when it is written."""


class RunRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request to run a function."""

    run_id: int
    schedule: str
    tick_at: datetime
    origin: str
    function: str
    args: list[Any] | dict[str, Any] = []
    timeout: float | None = None


class RunReport(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of a run."""

    run_id: int
    status: RunStatus
    error: str | None = None
    traceback: str | None = None
