"""Bulk actions: one action on all tasks that met a filter when it was previewed."""

from __future__ import annotations

import json
from datetime import datetime
from enum import StrEnum
from typing import Any, Final

import msgspec

from peerd.domain.errors import InvalidFilter, InvalidTask
from peerd.domain.lifecycle import IllegalTransition, Status, TaskEvent, sources
from peerd.domain.quoting import quoted
from peerd.domain.task import (
    BODY_LIMIT,
    JSON_EXAMPLE,
    NAME_LIMIT,
    PRIORITY_RANGE,
    QUEUE_NAME,
    Task,
    check_moment,
    check_text,
)


class BulkState(StrEnum):
    """The values of ``bulk_actions.state``."""

    COUNTING = "counting"  # how many tasks it is for, which is known up to 10,000 when it begins
    RUNNING = "running"
    PAUSED = "paused"
    CANCELED = "canceled"
    DONE = "done"
    FAILED = "failed"


ACTIVE: Final = (BulkState.COUNTING, BulkState.RUNNING)
"""The states in which managers carry a bulk action out."""
OPEN: Final = (*ACTIVE, BulkState.PAUSED)
ENDED: Final = (BulkState.CANCELED, BulkState.DONE, BulkState.FAILED)
MOST_COUNTED: Final = 10_000
"""Tasks that a preview counts; where there are more, it says so."""
RESTRICTED_TO: Final = "queues"
"""The field of a stored filter that holds the queues to which the actor of a bulk action was restricted."""
MOST_ERRORS: Final = 10
"""Refused tasks that a bulk action keeps with their errors; all are counted."""


class BulkRetry(msgspec.Struct, frozen=True, tag="retry", forbid_unknown_fields=True):
    """Let tasks run again at once, with all their attempts."""


class BulkCancel(msgspec.Struct, frozen=True, tag="cancel", forbid_unknown_fields=True):
    """End tasks that have not ended. ``reason`` becomes their error."""

    reason: str = "canceled by hand"

    def __post_init__(self) -> None:
        check_text("reason", self.reason, BODY_LIMIT)


class BulkDelete(msgspec.Struct, frozen=True, tag="delete", forbid_unknown_fields=True):
    """Delete tasks and their attempts."""


class BulkSnooze(msgspec.Struct, frozen=True, tag="snooze", forbid_unknown_fields=True):
    """Let tasks start so many seconds after the moment at which each is written."""

    seconds: float

    def __post_init__(self) -> None:
        check_moment("start", None, self.seconds)


class BulkMove(msgspec.Struct, frozen=True, tag="move", forbid_unknown_fields=True):
    """Pin tasks to the node of this name, or to none."""

    node: str | None

    def __post_init__(self) -> None:
        check_text("node", self.node, NAME_LIMIT)


class BulkMoveToQueue(msgspec.Struct, frozen=True, tag="move_to_queue", forbid_unknown_fields=True):
    """Put tasks into another queue."""

    queue: str

    def __post_init__(self) -> None:
        if not QUEUE_NAME.fullmatch(self.queue):
            raise InvalidTask("queue", f"{quoted(self.queue)} is not 1 to 200 of A-Z a-z 0-9 - + / ; . $ _ ( ) : @")


class BulkChange(msgspec.Struct, frozen=True, tag="change", forbid_unknown_fields=True):
    """Change the priority, or the body, of tasks that neither run nor have ended. ``body`` is JSON text.

    >>> BulkChange(priority=20).body is None
    True
    >>> BulkChange()
    Traceback (most recent call last):
    peerd.domain.errors.InvalidTask: priority: nothing is to be changed; give a priority or a body
    """

    priority: int | None = None
    body: str | None = None

    def __post_init__(self) -> None:
        if self.priority is None and self.body is None:
            raise InvalidTask("priority", "nothing is to be changed; give a priority or a body")
        low, high = PRIORITY_RANGE
        if self.priority is not None and not low <= self.priority <= high:
            raise InvalidTask("priority", f"{quoted(self.priority)} is not between {low} and {high}")
        if self.body is not None:
            check_text("body", self.body, BODY_LIMIT)
            try:
                json.loads(self.body)
            except (ValueError, RecursionError):
                raise InvalidTask("body", f"it is no JSON, such as {JSON_EXAMPLE}") from None


class BulkBury(msgspec.Struct, frozen=True, tag="bury", forbid_unknown_fields=True):
    """Set aside tasks that have not ended."""


class BulkKick(msgspec.Struct, frozen=True, tag="kick", forbid_unknown_fields=True):
    """Make tasks pending that are buried, or wait for their time."""


TaskAction = (
    BulkRetry | BulkCancel | BulkDelete | BulkSnooze | BulkMove | BulkMoveToQueue | BulkChange | BulkBury | BulkKick
)
"""What is done to one task, or to each of a bulk action."""

EVENTS: Final[dict[type[msgspec.Struct], TaskEvent]] = {
    BulkRetry: TaskEvent.RETRY,
    BulkCancel: TaskEvent.CANCEL,
    BulkDelete: TaskEvent.DELETE,
    BulkSnooze: TaskEvent.RESCHEDULE,
    BulkMove: TaskEvent.MOVE,
    BulkMoveToQueue: TaskEvent.MOVE,
    BulkChange: TaskEvent.CHANGE,
    BulkBury: TaskEvent.BURY,
    BulkKick: TaskEvent.KICK,
}


def event_of(action: TaskAction) -> TaskEvent:
    """The event of each task.

    >>> event_of(BulkRetry())
    <TaskEvent.RETRY: 'retry'>
    """
    return EVENTS[type(action)]


def check_status(action: TaskAction, status: Status | None) -> None:
    """Raise IllegalTransition for a filter whose tasks all refuse the action.

    >>> check_status(BulkRetry(), Status.DEAD)
    >>> check_status(BulkRetry(), Status.PENDING)
    Traceback (most recent call last):
    peerd.domain.lifecycle.IllegalTransition: cannot retry a task that is pending; only one that is scheduled, working,\
 failure, done, dead, canceled or buried
    """
    if status is not None and status not in sources(event_of(action)):
        raise IllegalTransition(status, event_of(action))


def action_tag(action: TaskAction) -> str:
    """The name of an action.

    >>> action_tag(BulkMoveToQueue("mail"))
    'move_to_queue'
    """
    return str(action.__struct_config__.tag)


def encode_action(action: TaskAction) -> tuple[str, str]:
    """The name of an action, and its arguments as JSON.

    >>> encode_action(BulkSnooze(60.0))
    ('snooze', '{"seconds":60.0}')
    """
    arguments = msgspec.to_builtins(action)
    return arguments.pop("type"), msgspec.json.encode(arguments).decode()


def decode_action(name: str, arguments: str) -> TaskAction:
    """The action of a row.

    Raises:
        InvalidFilter: SQL by hand has written something else.
    """
    try:
        given: Any = msgspec.json.decode(arguments)
        return msgspec.convert({**given, "type": name}, TaskAction)  # type: ignore[no-any-return]
    except (msgspec.MsgspecError, TypeError, ValueError) as error:
        raise InvalidFilter("action", f"{quoted(name)} with {quoted(arguments)} is no action: {error}") from None


class RefusedTask(msgspec.Struct, frozen=True):
    """A task that a bulk action could not act on."""

    task: int
    error: str


class BulkAction(msgspec.Struct, frozen=True, kw_only=True):
    """A row of the table ``bulk_actions``.

    Attributes:
        id: its id.
        action: what is done to each task.
        filter: the fields of the filter that are not null; ``queues`` are those that its actor was restricted to.
        highest_id: the newest task of its preview; later ones are never acted on.
        as_of: the moment of its preview; tasks that have changed since are not acted on.
        most: tasks that are acted on at the most.
        state: its state.
        matched: tasks that it is for.
        at_least: whether there are more, which are still being counted.
        examined: index entries that were compared with the filter.
        done: tasks that were acted on.
        skipped: tasks that had changed since the preview.
        failed: tasks that could not be acted on.
        errors: the first of these.
        postponed: tasks whose rows another session has locked; it comes back to them.
        error: why the bulk action failed.
        created_by: the user who created it.
        created_at: when it was created.
        started_at: when its first task was written, or counted.
        updated_at: when its row changed last.
        finished_at: when it ended.
    """

    id: int
    action: TaskAction
    filter: dict[str, Any]
    highest_id: int
    as_of: datetime
    most: int | None
    state: BulkState
    matched: int
    at_least: bool
    examined: int
    done: int
    skipped: int
    failed: int
    errors: list[RefusedTask]
    postponed: int
    error: str | None
    created_by: str | None
    created_at: datetime
    started_at: datetime | None
    updated_at: datetime
    finished_at: datetime | None

    @property
    def action_name(self) -> str:
        """The name of its action, such as ``retry``."""
        return action_tag(self.action)

    @property
    def queues(self) -> frozenset[str] | None:
        """The queues whose tasks alone it acts on, because its actor was restricted to them; None: it was not."""
        queues = self.filter.get(RESTRICTED_TO)
        return None if queues is None else frozenset(queues)

    @property
    def has_ended(self) -> bool:
        """Whether nothing more happens."""
        return self.state in ENDED

    @property
    def progress(self) -> float | None:
        """The part that is done, 0 to 1; None while the tasks are counted."""
        if self.state is BulkState.COUNTING or self.at_least:
            return None
        treated = self.done + self.skipped + self.failed
        return 1.0 if self.matched == 0 else min(treated / self.matched, 1.0)


class BulkPreview(msgspec.Struct, frozen=True, kw_only=True):
    """What a bulk action would be for.

    Attributes:
        matched: tasks; counting ends at 10,000.
        at_least: whether there are, or may be, more.
        examples: the first of them, without bodies and results.
        highest_id: the newest task now.
        as_of: the moment.
        digest: for `create`, which then acts on these tasks and no others.
    """

    matched: int
    at_least: bool
    examples: list[Task]
    highest_id: int
    as_of: datetime
    digest: str
