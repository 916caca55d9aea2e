"""What the agent and a worker process say to each other about a run."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

import msgspec

from peerd.domain.schedule import RunStatus

RUN_ACTION: Final = "peerd.schedules.run"
"""The action of an order: answered with whether it is taken, before it is carried out."""
REPORT_ACTION: Final = "peerd.schedules.ended"
"""The action of a report: answered when it is written."""


class RunRequest(msgspec.Struct, frozen=True, kw_only=True):
    """That a function shall be run."""

    run_id: int
    schedule: str
    tick_at: datetime
    origin: str
    function: str
    args: list[Any] | dict[str, Any] = []
    timeout: float | None = None


class RunReport(msgspec.Struct, frozen=True, kw_only=True):
    """How a run has ended."""

    run_id: int
    status: RunStatus
    error: str | None = None
    traceback: str | None = None


def to_json(value: RunRequest | RunReport) -> dict[str, Any]:
    """As a message carries it."""
    built: dict[str, Any] = msgspec.to_builtins(value)
    return built


def decode_run_request(data: object) -> RunRequest:
    """An order that has come.

    Raises:
        msgspec.ValidationError: it is none.
    """
    return msgspec.convert(data, RunRequest)


def decode_run_report(data: object) -> RunReport:
    """A report that has come.

    Raises:
        msgspec.ValidationError: it is none.
    """
    return msgspec.convert(data, RunReport)
