"""The context of a scheduled function."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import structlog

from peerd.runtime.messenger import Messenger
from peerd.runtime.process.process_context import ProcessContext
from peerd.schedules.run_requests import RunRequest


class ScheduleContext:
    """The current run: the first argument of a scheduled function, if that argument's name is ``ctx``.

    Attributes:
        schedule: the schedule's name.
        tick_at: the moment that the run is for, in UTC; for a manual run, when it was requested.
        origin: ``clock``, ``start``, ``hand``, ``custom`` or ``again``.
        run_id: of its row in ``schedule_runs``.
        process: the worker process: ``messenger``, ``client``, ``shared``, ``options``, ``run_in_background``.
        log: a logger that adds the schedule and the run to each line.
        cancelled: becomes true when the timeout is over or the process must end. Plain functions, which cannot be
            interrupted, should check it.
    """

    def __init__(self, request: RunRequest, process: ProcessContext) -> None:
        self.schedule = request.schedule
        self.tick_at: datetime = request.tick_at
        self.origin = request.origin
        self.run_id = request.run_id
        self.process = process
        self.log: structlog.stdlib.BoundLogger = structlog.get_logger("peerd.schedule").bind(
            schedule=request.schedule, run=request.run_id
        )
        self.cancelled = False

    @property
    def messenger(self) -> Messenger:
        """The process's messenger."""
        return self.process.messenger

    @property
    def client(self) -> Any:
        """A `Client` on the process's database; coroutines use ``ctx.client.aio``."""
        return self.process.client

    @property
    def shared(self) -> Any:
        """Access to the objects that the node's processes share in its agent."""
        return self.process.shared
