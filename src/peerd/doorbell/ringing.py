"""When a process rings: for its events that mean work, and after the commit of a caller's transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from sqlalchemy.engine import Connection

from peerd.domain.ring import (
    MAX_TASKS,
    ClaimRevoked,
    Coalescer,
    Ring,
    TasksAvailable,
    TaskScheduled,
    tasks_available_in,
)
from peerd.domain.task import QUEUE_NAME
from peerd.doorbell.notifier import Notifier
from peerd.runtime.concurrency import ForkSafeLock
from peerd.runtime.observability import events
from peerd.runtime.observability.events import Event

RINGS_BY_CHORE: Final[dict[str, Ring]] = {
    "stage scheduled": TasksAvailable(),
    "stage failures": TasksAvailable(),
    "pinned": TasksAvailable(),
    "postpone": TaskScheduled(within=0.0),
}
PENDING_RINGS: Final = "peerd_rings"
"""Key in `Connection.info` of the rings to send after the commit."""
_WRAPPED: Final = "peerd_watches_commits"


class DoorbellEventListener:
    """Calls `ring` for each event that means work; for `EventBus.listen`.

    >>> rung = []
    >>> listener = DoorbellEventListener(rung.append)
    >>> listener(events.ChoreRan(chore="stage scheduled", count=3))
    >>> listener(events.ChoreRan(chore="purge done", count=3))
    >>> rung
    [TasksAvailable(queues=())]
    """

    def __init__(self, ring: Callable[[Ring], object]) -> None:
        self._ring = ring

    def __call__(self, event: Event) -> None:
        """Ring, if the event means work."""
        match event:
            case events.AttemptEnded(outcome="done"):
                return
            case events.AttemptEnded(outcome="released"):
                self._ring(TasksAvailable((event.queue,)))
            case events.AttemptEnded() if event.retry_in is not None:
                self._ring(TaskScheduled(within=max(event.retry_in, 0.0)))
            # a schedule's run with a queue has enqueued its task
            case events.LimitedTaskEnded() | events.ScheduleRunEnded(queue=str()):
                self._ring(TasksAvailable((str(event.queue),)))
            case events.UnknownClaimReleased() | events.ReservationsReleased():
                self._ring(TasksAvailable())
            case events.TasksRescued():  # each is pending again, or a failure that is due at once
                self._ring(TaskScheduled(within=0.0))
                self._ring(TasksAvailable())
            case events.BulkChunkDone():
                list(map(self._ring, rings_of_chunk(event)))
            case events.ChoreRan() if event.chore in RINGS_BY_CHORE:
                self._ring(RINGS_BY_CHORE[event.chore])


def rings_of_chunk(event: events.BulkChunkDone) -> Iterator[Ring]:
    """What a chunk of a bulk action means for others.

    >>> done = {"bulk_id": 1, "action": "retry", "rows": 3}
    >>> list(rings_of_chunk(events.BulkChunkDone(**done, queues=("video",), revoked=(7,))))
    [ClaimRevoked(tasks=(7,)), TasksAvailable(queues=('video',))]
    """
    for first in range(0, len(event.revoked), MAX_TASKS):
        yield ClaimRevoked(event.revoked[first : first + MAX_TASKS])
    if event.queues:
        yield tasks_available_in(filter(QUEUE_NAME.fullmatch, event.queues))  # SQL by hand may have others


_lock = ForkSafeLock()


def ring_after_commit(connection: Connection, notifier: Notifier, rings: Sequence[Ring]) -> None:
    """Ring when the connection's present transaction has been committed, and not when it is rolled back.

    SQLAlchemy's event `commit` fires before the commit, when other sessions cannot see the work yet. So the two methods
    of the engine's dialect that commit and roll back are wrapped when a task is first enqueued through the engine. The
    ring of a savepoint that is rolled back is sent all the same, which costs one query; a two-phase commit is not
    noticed, and the poll finds its tasks.
    """
    _wrap_dialect(connection.engine.dialect)
    pending: dict[Notifier, Coalescer] = connection.info.setdefault(PENDING_RINGS, {})
    coalescer = pending.setdefault(notifier, Coalescer())
    for ring in rings:
        coalescer.add(ring)


def _wrap_dialect(dialect: Any) -> None:
    with _lock:
        if not getattr(dialect, _WRAPPED, False):
            dialect.do_commit = _wrap(dialect.do_commit, rings=True)
            dialect.do_rollback = _wrap(dialect.do_rollback, rings=False)
            setattr(dialect, _WRAPPED, True)


def _wrap(end_transaction: Callable[[Any], None], *, rings: bool) -> Callable[[Any], None]:
    def end(connection: Any) -> None:
        end_transaction(connection)
        info = getattr(connection, "info", None)
        pending = info.pop(PENDING_RINGS, None) if isinstance(info, dict) else None
        if pending and rings:
            for notifier, coalescer in pending.items():
                notifier.ring(*coalescer.take())

    return end
