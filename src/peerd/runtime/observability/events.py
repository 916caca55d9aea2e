"""The events of a process, and the bus that passes them to listeners.

Code of peerd does not log: it emits an event. `peerd.runtime.observability.log_messages` turns events into log lines;
alerts, rings and tests are other listeners.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Container
from typing import Any, Final

import msgspec

from peerd.runtime.process.uncaught_exceptions import log_error

REPORT_EVERY: Final = 60.0
"""Seconds between two reports of listeners that fail."""


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """The root of all events."""


class LogLine(Event, frozen=True):
    """What nobody hears of but the log; `peerd.runtime.observability.log_messages` words it.

    Args:
        level: debug, info, warning or error.
        sentence: for people.
        figures: by name; None and empty ones are left out.
    """

    level: str
    sentence: str
    figures: dict[str, Any]


class TasksClaimed(Event, frozen=True, kw_only=True):
    """Tasks were claimed."""

    count: int
    milliseconds: float


class AttemptEvent(Event, frozen=True, kw_only=True):
    """The root of the events of one attempt."""

    task_id: int
    queue: str
    name: str


class AttemptStarted(AttemptEvent, frozen=True, kw_only=True):
    """A handler was called."""

    number: int


class AttemptEnded(AttemptEvent, frozen=True, kw_only=True):
    """A handler ended, and its outcome was written."""

    outcome: str
    seconds: float
    error: str | None = None
    retry_in: float | None = None
    wait: float | None = None  # seconds from the moment at which the task was due to its claim
    number: int | None = None  # of the attempt, from 1
    traceback: str | None = None


DEBUG_EVENTS: Final[tuple[type[Event], ...]] = (TasksClaimed, AttemptStarted)
"""Frequent events for the log at the level debug only."""


class TasksDone(Event, frozen=True, kw_only=True):
    """Many handlers succeeded in a short time."""

    count: int
    seconds: float  # the sum over all of them
    by_handler: dict[str, int]


class LimitedTaskEnded(Event, frozen=True, kw_only=True):
    """A task of a queue with limits has ended, which may let another one start."""

    queue: str


class ClaimLost(AttemptEvent, frozen=True, kw_only=True):
    """A running task was canceled, moved, rescued or deleted."""

    noticed_at: str  # a touch, or a refused outcome


class UnknownClaimReleased(Event, frozen=True, kw_only=True):
    """The table had a claim of this process for a task that does not run in it; the task was released."""

    task_id: int


class ErrorHookFailed(Event, frozen=True, kw_only=True):
    """The hook for an error tracker raised, or does not return; emitted once in a process."""

    error: str
    traceback: str | None = None


class TaskLinesDropped(Event, frozen=True, kw_only=True):
    """Log lines of attempts were not kept."""

    count: int
    reason: str


class PeriodicLoopEnded(Event, frozen=True, kw_only=True):
    """A periodic worker's loop ended."""

    worker: str
    seconds: float
    error: str | None = None
    traceback: str | None = None


class AttemptHookFailed(Event, frozen=True, kw_only=True):
    """A hook of the user raised, or did not end in time; the outcome of the attempt stays."""

    hook: str
    error: str
    traceback: str | None = None


class WebRequestAnswered(Event, frozen=True, kw_only=True):
    """A web request was answered; emitted for the access log."""

    what: str  # method and path
    status: int
    seconds: float
    client: str


class WebRequestFailed(Event, frozen=True, kw_only=True):
    """The app raised in a request or WebSocket."""

    what: str
    error: str
    traceback: str


class DatabaseOutageStarted(Event, frozen=True, kw_only=True):
    """The database stopped answering."""

    reason: str


class DatabaseOutageEnded(Event, frozen=True, kw_only=True):
    """The database answers again."""

    seconds: float


class DatabaseAway(Event, frozen=True, kw_only=True):
    """The database has not answered this agent for a while."""

    seconds: float
    reason: str


class DatabaseBack(Event, frozen=True, kw_only=True):
    """The database answers again, after an outage that was reported."""

    seconds: float


class QueueBacklogFound(Event, frozen=True, kw_only=True):
    """The oldest pending task of a queue has been due for too long."""

    queue: str
    oldest: float  # seconds
    is_served: bool  # false: no worker process and no queue client has ever served it


class QueueBacklogEnded(Event, frozen=True, kw_only=True):
    """A queue that was reported has no such task any more."""

    queue: str
    seconds: float  # since it was reported first


class StorageConditionFound(Event, frozen=True, kw_only=True):
    """Something about disks or files needs a person's attention, and lasts."""

    condition: str  # the kind of its alert
    text: str
    disk: int | None = None
    data: dict[str, object] = {}


class StorageConditionEnded(Event, frozen=True, kw_only=True):
    """A reported condition of disks or files is over."""

    condition: str
    text: str
    disk: int | None = None
    seconds: float  # since it was reported first


class BadCopiesFound(Event, frozen=True, kw_only=True):
    """Copies on a disk are damaged or missing; they were moved to quarantine, and are made anew."""

    disk: int
    path: str
    files: tuple[str, ...]  # the ids of their files, in hex
    bad: int  # copies of the disk that are so now, these included
    found_by: str  # verification, or reading


class ComponentFailed(Event, frozen=True, kw_only=True):
    """A component of this process failed, and is started again."""

    component: str
    error: str
    again_in: float
    failures: int = 1  # in a row, this one included


class NodeSuperseded(Event, frozen=True, kw_only=True):
    """Another incarnation has registered under this node's name; this one stops."""

    node: str
    reason: str


class MasterDied(Event, frozen=True, kw_only=True):
    """The master of this node died without a stop request; the node ends."""

    node: str


class NodesMarkedInactive(Event, frozen=True, kw_only=True):
    """Nodes were marked inactive."""

    nodes: tuple[str, ...]


class TasksRescued(Event, frozen=True, kw_only=True):
    """Tasks were released from a holder that is dead."""

    cause: str
    task_ids: tuple[int, ...]
    dead: int = 0  # the number of them without another attempt
    dead_tasks: tuple[str, ...] = ()  # the first of these, with their handlers


class ReservationsReleased(Event, frozen=True, kw_only=True):
    """Tasks that queue clients had reserved were released, because the process that served the clients is dead."""

    cause: str
    task_ids: tuple[int, ...]


class ProcessExited(Event, frozen=True, kw_only=True):
    """A process of this node has ended."""

    slot: str
    pid: int
    cause: str
    expected: bool  # whether it was asked to end, or ended by itself with status 0
    status: int | None = None  # of an exit; None: it was killed


class ChoreRan(Event, frozen=True, kw_only=True):
    """A chore of the manager changed rows."""

    chore: str
    count: int


class BulkActionStarted(Event, frozen=True, kw_only=True):
    """The first chunk of a bulk action was done."""

    bulk_id: int
    action: str
    matched: int
    at_least: bool  # there are more, which are being counted


class BulkChunkDone(Event, frozen=True, kw_only=True):
    """A chunk of a bulk action was committed."""

    bulk_id: int
    action: str
    rows: int
    queues: tuple[str, ...]  # in which there may be tasks to claim now
    revoked: tuple[int, ...]  # tasks that were running


class BulkActionEnded(Event, frozen=True, kw_only=True):
    """A bulk action has ended, or has failed."""

    bulk_id: int
    action: str
    state: str
    done: int
    skipped: int
    failed: int
    seconds: float
    error: str | None = None


class RescueSuspended(Event, frozen=True, kw_only=True):
    """The node may not rescue yet, because its own heartbeat had a gap."""

    seconds: float
    reason: str


class PinnedTasksBlocked(Event, frozen=True, kw_only=True):
    """Pending tasks wait for nodes that stay silent."""

    count: int
    policy: str
    nodes: tuple[str, ...]


class MessageHandlerFailed(Event, frozen=True, kw_only=True):
    """A message handler raised; a request is answered with the error."""

    action: str
    sender: str
    error: str
    traceback: str | None = None


class MessageNotDelivered(Event, frozen=True, kw_only=True):
    """A message whose delivery is not awaited was not delivered."""

    action: str
    error: str


class MessageDropped(Event, frozen=True, kw_only=True):
    """A message came to a process whose inbox is full."""

    action: str
    sender: str
    waiting: int


class BackgroundWorkFailed(Event, frozen=True, kw_only=True):
    """Background work raised, or came too late to be started."""

    name: str
    error: str
    traceback: str | None = None


class BackgroundWorkCancelled(Event, frozen=True, kw_only=True):
    """Background work did not end within the grace of its process, and was cancelled."""

    names: tuple[str, ...]


class DatabaseSlowdownDetected(Event, frozen=True, kw_only=True):
    """A condition of the database slows every claim, such as a long open transaction."""

    subject: str
    message: str
    remedy: str


class AlertDeliveryFailed(Event, frozen=True, kw_only=True):
    """A hook failed; the alert is tried again, or dropped if `again_in` is None."""

    hook: str
    alert: str
    error: str
    again_in: float | None


class AlertReportsDropped(Event, frozen=True, kw_only=True):
    """The database was away for so long that the oldest alerts will have no row."""

    count: int


class AlertNotRecorded(Event, frozen=True, kw_only=True):
    """The row of an alert could not be written; the hooks have got it nevertheless."""

    alert: str
    error: str


class ScheduleRunEnded(Event, frozen=True, kw_only=True):
    """A run of a schedule has ended."""

    schedule: str
    run_id: int
    status: str
    seconds: float
    error: str | None = None
    traceback: str | None = None
    task_id: int | None = None
    queue: str | None = None  # of the enqueued task


class ScheduleFailed(Event, frozen=True, kw_only=True):
    """A schedule does not work on this node."""

    schedule: str
    error: str


class ScheduleRunsLost(Event, frozen=True, kw_only=True):
    """The node of scheduled runs is gone."""

    run_ids: tuple[int, ...]


class RingsRejected(Event, frozen=True, kw_only=True):
    """Rings were refused; emitted once a minute for each reason."""

    sender: str
    reason: str
    count: int  # of this reason, since the agent started


EventListener = Callable[[Event], None]


ExceptionListener = Callable[[Event, BaseException | None], None]


class EventBus:
    """Passes each event to the listeners of its kind. Thread-safe, as far as its listeners are.

    >>> seen = []
    >>> events = EventBus(seen.append)
    >>> events.emit(ChoreRan(chore="purge done", count=3))
    >>> seen, events.has_listeners(ChoreRan), EventBus().has_listeners(ChoreRan)
    ([ChoreRan(chore='purge done', count=3)], True, False)
    """

    def __init__(self, *listeners: EventListener) -> None:
        self._listeners: list[tuple[EventListener, Container[type[Event]] | None, bool]]
        self._listeners = [(listener, None, True) for listener in listeners]
        self._by_kind: dict[type[Event], tuple[EventListener, ...]] = {}
        self._exception_listeners: tuple[ExceptionListener, ...] = ()
        self._next_report = 0.0

    def listen_with_exceptions(self, listener: ExceptionListener) -> None:
        """Add a listener that is called with each event and, of a failure in this process, with its exception."""
        self._exception_listeners = (*self._exception_listeners, listener)

    @property
    def wants_exceptions(self) -> bool:
        """Whether exceptions are worth to be kept for the events about them."""
        return bool(self._exception_listeners)

    def listen(
        self, listener: EventListener, kinds: Container[type[Event]] | None = None, *, debug: bool = True
    ) -> None:
        """Add a listener, to events of these kinds, or of all; those of `DEBUG_EVENTS` only with `debug`."""
        self._listeners = [*self._listeners, (listener, kinds, debug)]
        self._by_kind = {}

    def has_listeners(self, kind: type[Event]) -> bool:
        """Whether events of this kind have a listener; for those that happen thousands of times in a second."""
        return bool(self._exception_listeners or self._listeners_of(kind))

    def emit(self, event: Event, exception: BaseException | None = None) -> None:
        """Pass an event to its listeners; of a failure, with the exception.

        A listener that raises does not harm the others, nor the emitter: it is logged, once a minute.
        """
        for listener in self._listeners_of(type(event)):
            try:
                listener(event)
            except Exception as error:  # noqa: BLE001 - what happens does not depend on who hears of it
                self._report(error)
        for exception_listener in self._exception_listeners:
            try:
                exception_listener(event, exception)
            except Exception as error:  # noqa: BLE001 - as above
                self._report(error)

    def _report(self, error: Exception) -> None:
        if time.monotonic() >= self._next_report:
            self._next_report = time.monotonic() + REPORT_EVERY
            log_error("a listener of events failed", error)

    def _listeners_of(self, kind: type[Event]) -> tuple[EventListener, ...]:
        by_kind = self._by_kind  # read before the listeners: `listen` changes them first
        listeners = by_kind.get(kind)
        if listeners is None:
            listeners = by_kind[kind] = tuple(
                listener
                for listener, kinds, debug in self._listeners
                if (kinds is None or kind in kinds) and (debug or kind not in DEBUG_EVENTS)
            )
        return listeners
