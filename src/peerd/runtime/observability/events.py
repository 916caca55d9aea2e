"""What happens in a process, as facts with their figures.

Code of peerd does not log: it emits an event. `peerd.runtime.observability.log_messages` says how each reads in the
log; metrics and tests are other readers of the same events.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

import msgspec


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """The root of all events."""


class TasksClaimed(Event, frozen=True, kw_only=True):
    """Tasks were claimed."""

    count: int
    milliseconds: float


class AttemptStarted(Event, frozen=True, kw_only=True):
    """A handler began."""

    task_id: int
    queue: str
    name: str
    number: int


class AttemptEnded(Event, frozen=True, kw_only=True):
    """A handler ended, and its outcome was written."""

    task_id: int
    queue: str
    name: str
    outcome: str
    seconds: float
    error: str | None = None
    retry_in: float | None = None


DEBUG_EVENTS: Final[tuple[type[Event], ...]] = (TasksClaimed, AttemptStarted)
"""What happens so often, and says so little, that it is told at the level debug alone and read by nobody else."""


class TasksDone(Event, frozen=True, kw_only=True):
    """Handlers ended well, so many in a short time that they are told together."""

    count: int
    seconds: float
    """Of all of them together."""
    by_handler: dict[str, int]


class LimitedTaskEnded(Event, frozen=True, kw_only=True):
    """A task that was claimed by turns has ended: its place under a limit may be free."""

    queue: str


class ClaimLost(Event, frozen=True, kw_only=True):
    """A task was taken from this process: canceled, moved, rescued or deleted."""

    task_id: int
    queue: str
    name: str
    noticed_at: str
    """Where: a touch, or a refused outcome."""


class AttemptUnresponsive(Event, frozen=True, kw_only=True):
    """A handler was told to end a while ago, and goes on; its place stays taken."""

    task_id: int
    queue: str
    name: str
    stop_reason: str
    """Why it was told: its timeout, its finish_at, its claim is lost, its process stops."""


class UnknownClaimReleased(Event, frozen=True, kw_only=True):
    """The table said that this process holds a task that it did not know of; it was given back."""

    task_id: int


class PeriodicLoopEnded(Event, frozen=True, kw_only=True):
    """A periodic worker's loop ended."""

    worker: str
    seconds: float
    error: str | None = None
    traceback: str | None = None


class AttemptHookFailed(Event, frozen=True, kw_only=True):
    """A hook of the user raised an exception, or did not end in time; the attempt's outcome is not changed by it."""

    hook: str
    error: str
    traceback: str | None = None


class WebRequestAnswered(Event, frozen=True, kw_only=True):
    """A web request was answered; emitted where an access log is wanted."""

    what: str
    """Method and path."""
    status: int
    seconds: float
    client: str


class WebRequestFailed(Event, frozen=True, kw_only=True):
    """The app raised an exception in a request or WebSocket."""

    what: str
    error: str
    traceback: str


class WebRequestsAborted(Event, frozen=True, kw_only=True):
    """A web process that leaves had to end what was not done within the grace."""

    requests: int
    connections: int


class AcceptFailed(Event, frozen=True, kw_only=True):
    """A connection could not be accepted, as when descriptors run out."""

    error: str


class HttpServerWarned(Event, frozen=True, kw_only=True):
    """The HTTP server found something wrong with a request, or with an answer of the app."""

    text: str
    error: bool


class DatabaseOutageStarted(Event, frozen=True, kw_only=True):
    """The database stopped answering."""

    reason: str


class DatabaseOutageEnded(Event, frozen=True, kw_only=True):
    """The database answers again."""

    seconds: float


class ComponentFailed(Event, frozen=True, kw_only=True):
    """A part of this process failed unexpectedly and is started again."""

    component: str
    error: str
    again_in: float
    failures: int = 1
    """In a row, this one included."""


class ComponentEnded(Event, frozen=True, kw_only=True):
    """A part of this process has returned by itself, and is not started again."""

    component: str


class FilesChanged(Event, frozen=True, kw_only=True):
    """Code or configuration of the project has changed, and somebody watches it: what runs it is reloaded."""

    files: tuple[str, ...]


class NodeRegistered(Event, frozen=True, kw_only=True):
    """The node has begun a life."""

    node: str
    node_id: int


class WaitingForNode(Event, frozen=True, kw_only=True):
    """An earlier life of the node may still go on; it is watched until it has been silent long enough."""

    node: str
    seconds: float


class NodeSuperseded(Event, frozen=True, kw_only=True):
    """Another life of this node's name has begun while this one was silent; this one ends."""

    node: str
    reason: str


class MasterDied(Event, frozen=True, kw_only=True):
    """The master of this node has gone without asking for a stop; the node ends."""

    node: str


class NodesMarkedInactive(Event, frozen=True, kw_only=True):
    """Nodes were marked inactive."""

    nodes: tuple[str, ...]


class TasksRescued(Event, frozen=True, kw_only=True):
    """Tasks were taken back from a holder that is dead."""

    cause: str
    task_ids: tuple[int, ...]
    dead: int = 0
    """How many of them had no attempt left."""


class ProcessExited(Event, frozen=True, kw_only=True):
    """The master saw a process of this node die."""

    slot: str
    pid: int
    cause: str
    expected: bool
    """It was asked to, or has left by its own will with status 0."""


class ChoreRan(Event, frozen=True, kw_only=True):
    """A chore of the manager did something."""

    chore: str
    count: int


class RescueSuspended(Event, frozen=True, kw_only=True):
    """This node may not rescue for a while: it has itself not beaten without a gap."""

    seconds: float
    reason: str


class PinnedTasksBlocked(Event, frozen=True, kw_only=True):
    """Pending tasks wait for nodes that stay silent."""

    count: int
    policy: str


class MessageHandlerFailed(Event, frozen=True, kw_only=True):
    """A handler of messages raised an exception; a request is answered with it."""

    action: str
    sender: str
    error: str
    traceback: str | None = None


class MessageNotDelivered(Event, frozen=True, kw_only=True):
    """A message was not delivered, and nobody awaits what became of it."""

    action: str
    error: str


class MessageDropped(Event, frozen=True, kw_only=True):
    """A message came to a process that has too many before it."""

    action: str
    sender: str
    waiting: int


class BackgroundWorkFailed(Event, frozen=True, kw_only=True):
    """Work in the background raised an exception, or came too late to be begun."""

    name: str
    error: str
    traceback: str | None = None


class BackgroundWorkCancelled(Event, frozen=True, kw_only=True):
    """Work in the background did not end within the grace of its process, and was cancelled."""

    names: tuple[str, ...]


class DatabaseSlowdownDetected(Event, frozen=True, kw_only=True):
    """Something in the database slows every claim, such as a transaction that has been open for long."""

    subject: str
    message: str
    remedy: str


class AlertRaised(Event, frozen=True, kw_only=True):
    """A person should hear of something; for the hook that is the log."""

    alert: str
    text: str
    slot: str | None = None


class AlertDeliveryFailed(Event, frozen=True, kw_only=True):
    """A hook did not take an alert; it is tried again, or given up."""

    hook: str
    alert: str
    error: str
    again_in: float | None


class AlertsDropped(Event, frozen=True, kw_only=True):
    """A hook takes alerts so slowly that the oldest are dropped."""

    hook: str
    count: int


class ScheduleTickFired(Event, frozen=True, kw_only=True):
    """A schedule's tick was seen to by this node."""

    schedule: str
    run_id: int
    tick: str
    status: str
    reason: str | None = None
    """Why it does not run."""
    late: float | None = None
    """Seconds, of one that was missed."""


class ScheduleRunStarted(Event, frozen=True, kw_only=True):
    """A run of a schedule was given to a process."""

    schedule: str
    run_id: int
    slot: str


class ScheduleRunEnded(Event, frozen=True, kw_only=True):
    """A run of a schedule has ended."""

    schedule: str
    run_id: int
    status: str
    seconds: float
    error: str | None = None
    traceback: str | None = None
    task_id: int | None = None
    queue: str | None = None
    """Of the task that it has enqueued."""


class ScheduleFailed(Event, frozen=True, kw_only=True):
    """A schedule cannot be kept as it should, on this node."""

    schedule: str
    error: str


class ScheduleRunsLost(Event, frozen=True, kw_only=True):
    """Runs of schedules were on a node that is gone."""

    run_ids: tuple[int, ...]


EventListener = Callable[[Event], None]


class DoorbellStatusChanged(Event, frozen=True, kw_only=True):
    """The doorbell of this node is known to work, or is not any more."""

    works: bool
    reason: str | None


class RingsRejected(Event, frozen=True, kw_only=True):
    """Somebody rang whom nobody listens to; said once a minute for each reason."""

    sender: str
    reason: str
    count: int
    """Of this reason, since the agent began."""


class ClusterBroadcastFailed(Event, frozen=True, kw_only=True):
    """A message for all nodes has reached this one only."""

    action: str
    reason: str


class EventFilter(Protocol):
    """A reader that says what it reads: nobody needs to make a fact that no reader reads."""

    def accepts(self, kind: type[Event]) -> bool:
        """Whether it reads facts of this kind; its answer never changes."""
        ...


def accepts_event(listener: EventListener, kind: type[Event]) -> bool:
    """Whether a reader reads facts of a kind: all of them, unless it is `EventFilter`."""
    accepts = getattr(listener, "accepts", None)
    return accepts is None or bool(accepts(kind))


class EventBus:
    """Where facts go: each reader gets each that it reads. Safe to use from several threads, as far as its readers are.

    >>> seen = []
    >>> events = EventBus(seen.append)
    >>> events.emit(ChoreRan(chore="purge done", count=3))
    >>> seen, events.has_listeners(ChoreRan), EventBus().has_listeners(ChoreRan)
    ([ChoreRan(chore='purge done', count=3)], True, False)
    """

    def __init__(self, *listeners: EventListener) -> None:
        self._listeners = listeners
        self._by_kind: dict[type[Event], tuple[EventListener, ...]] = {}

    def listen(self, listener: EventListener) -> None:
        """Let one more read what is emitted from now on."""
        self._listeners = (*self._listeners, listener)
        self._by_kind = {}

    def has_listeners(self, kind: type[Event]) -> bool:
        """Whether anybody reads facts of this kind; for those that happen thousands of times in a second."""
        return bool(self._listeners_of(kind))

    def emit(self, event: Event) -> None:
        """Tell every reader."""
        for listener in self._listeners_of(type(event)):
            listener(event)

    def _listeners_of(self, kind: type[Event]) -> tuple[EventListener, ...]:
        by_kind = self._by_kind  # before the readers: `listen` changes them first
        listeners = by_kind.get(kind)
        if listeners is None:
            listeners = by_kind[kind] = tuple(listener for listener in self._listeners if accepts_event(listener, kind))
        return listeners
