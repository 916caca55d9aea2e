"""peerd with one of its guarantees taken out, for real nodes: what the checker must catch.

Nodes load `old` and `new` from here in the place of `tests.faults.versions`; $PEERD_BREAK names what breaks in the
processes of that worker, and there alone.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from peerd.domain.outcome import Failed
from peerd.domain.task import Task
from peerd.store.outcomes import ClaimId
from peerd.store.schema.tables import tasks
from peerd.work import active_claims, attempt_outcome, executor_slots, outcome_writer, task_fetcher
from peerd.work.active_attempt import ActiveAttempt
from peerd.work.arguments import HandlerArguments
from tests.faults.versions import new, old

__all__ = ["MUTATIONS", "VARIABLE", "new", "old"]

VARIABLE: Final = "PEERD_BREAK"


def complete_without_lease() -> None:
    """A holder that does not notice the loss of its claim writes success by the task's id alone."""

    def complete(connection: Connection, process_id: int, results: Mapping[ClaimId, str | None]) -> set[ClaimId]:
        for held, result in results.items():
            values = {"status": "done", "result": result}
            connection.execute(sa.update(tasks).where(tasks.c.id == held.id).values(**values))
        return set()

    vars(outcome_writer)[complete.__name__] = complete
    executor_slots.ExecutorSlots.on_claim_lost = lambda self, held, noticed_at: None  # type: ignore[method-assign]


def skip_touch() -> None:
    """A living process says neither that it lives nor that it holds its tasks, and so they are taken from it."""
    active_claims.Toucher._touch_all = lambda self, now: None  # type: ignore[method-assign]


def skip_heartbeat() -> None:
    """A process that holds tasks touches them, and does not say that it lives itself."""
    active_claims.Toucher._write_heartbeat = lambda self: None  # type: ignore[method-assign]


def drop_outcomes() -> None:
    """A success is counted as written before it is, and it never is."""

    def add(self: outcome_writer.OutcomeWriter, attempt: ActiveAttempt) -> None:
        self._count += 1
        self._on_written([attempt], set())

    outcome_writer.OutcomeWriter.add = add  # type: ignore[method-assign]


def run_crashed_beside_others() -> None:
    """A task that has crashed a process is claimed by one that is not empty."""

    async def claim(self: task_fetcher.TaskFetcher, wanted: int, running: int, free: int) -> list[Task]:
        return (await self._claim(1, quarantined=True)).tasks or (await self._claim(wanted, quarantined=False)).tasks

    task_fetcher.TaskFetcher.claim = claim  # type: ignore[method-assign]


def never_release() -> None:
    """What a process does not know is dead, although others know it."""
    vars(attempt_outcome)["decide_unsupported_task"] = lambda task, error, sight, unknown_after: Failed(
        error=str(error)
    )


def drop_unknown_arguments() -> None:
    """An argument that a handler does not know is left out, and the handler is run without it."""
    decode = HandlerArguments.decode

    def decode_what_is_known(self: HandlerArguments, body: str | bytes | None) -> dict[str, Any]:
        given = msgspec.json.decode(body or "{}")
        return decode(self, msgspec.json.encode({name: given[name] for name in given if name in self.signature}))

    HandlerArguments.decode = decode_what_is_known  # type: ignore[method-assign]


MUTATIONS: Final[dict[str, Callable[[], None]]] = {
    "completes without its lease": complete_without_lease,
    "touches nothing": skip_touch,
    "sends no heartbeat": skip_heartbeat,
    "forgets outcomes": drop_outcomes,
    "runs the crashed beside others": run_crashed_beside_others,
    "releases nothing": never_release,
    "leaves out what it does not know": drop_unknown_arguments,
}

if os.environ.get(VARIABLE):
    MUTATIONS[os.environ[VARIABLE]]()
