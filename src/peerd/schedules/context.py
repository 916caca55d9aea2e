"""What a scheduled function is given."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import structlog

from peerd.runtime.messages.messenger import Messenger
from peerd.runtime.process.process_context import ProcessContext
from peerd.schedules.run_requests import RunRequest


class ScheduleContext:
    """The run that goes on: the first argument of a scheduled function, if its name is ``ctx``.

    Attributes:
        schedule: the schedule's name.
        tick_at: the moment that the run is for, in UTC; by hand, when it was asked for.
        origin: ``clock``, ``start``, ``hand``, ``custom`` or ``again``.
        run_id: of its row in ``schedule_runs``.
        process: the worker process: ``messenger``, ``client``, ``shared``, ``options``, ``run_in_background``.
        log: names the schedule and the run in each line.
        cancelled: becomes true when its timeout is over or the process must end. Look at it in plain functions, which
            cannot be interrupted.
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
        """A `Client` on the process's database; in a coroutine use what is below ``ctx.client.aio``."""
        return self.process.client

    @property
    def shared(self) -> Any:
        """The way to what the processes of the node share in its agent."""
        return self.process.shared
