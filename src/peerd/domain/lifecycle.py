"""The life of a task as a table: (status, event) → status.

This table is the only source of status changes: the store's statements, the error texts, the diagram in
docs/lifecycle.md and the tests are made from it. ``GONE`` is not a status: the row is deleted.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from peerd.domain.errors import PeerdError


class Status(StrEnum):
    """The values of the ``status`` column."""

    SCHEDULED = "scheduled"
    PENDING = "pending"
    WORKING = "working"
    DONE = "done"
    FAILURE = "failure"
    DEAD = "dead"
    WAITING = "waiting"
    CANCELED = "canceled"
    BURIED = "buried"


class TaskEvent(StrEnum):
    """The events of a task."""

    STAGE = "stage"  # its start_at has come
    POSTPONE = "postpone"  # it was written as pending although its start_at is in the future
    UNBLOCK = "unblock"  # the tasks that it depends on have ended
    CLAIM = "claim"  # a process claims it, for itself or for a queue client
    TAKE = "take"  # a queue client reserves it by its id
    COMPLETE = "complete"  # its handler succeeded
    FAIL = "fail"  # its attempt failed, and another one follows
    DIE = "die"  # its attempt failed, and no other one follows
    SNOOZE = "snooze"  # its handler asked to run later; the attempt is not counted
    DEFER = "defer"  # its process does not know its handler, or its arguments; the attempt is not counted
    RELEASE = "release"  # its holder releases it; the attempt is not counted
    RESCUE = "rescue"  # its holder is dead; the attempt is counted
    CANCEL = "cancel"  # a person or an application withdraws it
    RETRY = "retry"  # a person or an application starts it anew, with all its attempts
    MOVE = "move"  # a person or an application pins it to another node, or to none
    ABANDON = "abandon"  # the node that it is pinned to has been silent for too long
    RESCHEDULE = "reschedule"  # a person or an application lets it start later
    CHANGE = "change"  # a person or an application changes its priority or its body
    BURY = "bury"  # a queue client, or a person, sets it aside
    KICK = "kick"  # a queue client, or a person, makes a task pending that is buried or waits for its time
    EXPIRE = "expire"  # its finish_at has come before it was started
    PURGE = "purge"  # it ended long ago
    DELETE = "delete"  # a person or an application deletes the row


class Gone:
    """The row is deleted."""

    def __repr__(self) -> str:
        return "GONE"


GONE: Final = Gone()

S, E = Status, TaskEvent

TRANSITIONS: Final[dict[tuple[Status, TaskEvent], Status | Gone]] = {
    # time passes
    (S.SCHEDULED, E.STAGE): S.PENDING,
    (S.FAILURE, E.STAGE): S.PENDING,
    (S.PENDING, E.POSTPONE): S.SCHEDULED,
    (S.WAITING, E.UNBLOCK): S.PENDING,
    (S.PENDING, E.EXPIRE): GONE,
    (S.PENDING, E.ABANDON): S.DEAD,
    # an attempt
    (S.PENDING, E.CLAIM): S.WORKING,
    (S.PENDING, E.TAKE): S.WORKING,
    (S.SCHEDULED, E.TAKE): S.WORKING,
    (S.FAILURE, E.TAKE): S.WORKING,
    (S.BURIED, E.TAKE): S.WORKING,
    (S.WORKING, E.COMPLETE): S.DONE,
    (S.WORKING, E.FAIL): S.FAILURE,
    (S.WORKING, E.DIE): S.DEAD,
    (S.WORKING, E.SNOOZE): S.SCHEDULED,
    (S.WORKING, E.DEFER): S.SCHEDULED,
    (S.WORKING, E.RELEASE): S.PENDING,
    (S.WORKING, E.RESCUE): S.FAILURE,
    # a person or an application acts
    (S.SCHEDULED, E.CANCEL): S.CANCELED,
    (S.PENDING, E.CANCEL): S.CANCELED,
    (S.WORKING, E.CANCEL): S.CANCELED,
    (S.FAILURE, E.CANCEL): S.CANCELED,
    (S.WAITING, E.CANCEL): S.CANCELED,
    (S.BURIED, E.CANCEL): S.CANCELED,
    (S.SCHEDULED, E.RETRY): S.PENDING,
    (S.WORKING, E.RETRY): S.PENDING,
    (S.FAILURE, E.RETRY): S.PENDING,
    (S.DONE, E.RETRY): S.PENDING,
    (S.DEAD, E.RETRY): S.PENDING,
    (S.CANCELED, E.RETRY): S.PENDING,
    (S.BURIED, E.RETRY): S.PENDING,
    (S.SCHEDULED, E.MOVE): S.SCHEDULED,
    (S.PENDING, E.MOVE): S.PENDING,
    (S.WORKING, E.MOVE): S.PENDING,
    (S.FAILURE, E.MOVE): S.FAILURE,
    (S.WAITING, E.MOVE): S.WAITING,
    (S.BURIED, E.MOVE): S.BURIED,
    (S.SCHEDULED, E.RESCHEDULE): S.SCHEDULED,
    (S.PENDING, E.RESCHEDULE): S.SCHEDULED,
    (S.WORKING, E.RESCHEDULE): S.SCHEDULED,
    (S.FAILURE, E.RESCHEDULE): S.SCHEDULED,
    (S.SCHEDULED, E.CHANGE): S.SCHEDULED,
    (S.PENDING, E.CHANGE): S.PENDING,
    (S.FAILURE, E.CHANGE): S.FAILURE,
    (S.WAITING, E.CHANGE): S.WAITING,
    (S.BURIED, E.CHANGE): S.BURIED,
    (S.SCHEDULED, E.BURY): S.BURIED,
    (S.PENDING, E.BURY): S.BURIED,
    (S.WORKING, E.BURY): S.BURIED,
    (S.FAILURE, E.BURY): S.BURIED,
    (S.WAITING, E.BURY): S.BURIED,
    (S.SCHEDULED, E.KICK): S.PENDING,
    (S.FAILURE, E.KICK): S.PENDING,
    (S.BURIED, E.KICK): S.PENDING,
    # the end of a row
    (S.DONE, E.PURGE): GONE,
    (S.DEAD, E.PURGE): GONE,
    (S.CANCELED, E.PURGE): GONE,
    **{(status, E.DELETE): GONE for status in Status},
}

FINISHED: Final = (S.DONE, S.DEAD, S.CANCELED)
"""Statuses of a task that has ended; only actions of people and applications lead out of them."""

REMEDIES: Final = {
    (True, E.CHANGE): "; enqueue a new one with other values",
    (False, E.CHANGE): "; bury it first, which ends its attempt",
    (True, E.KICK): "; retry it instead",
    **{(True, event): "; retry it first" for event in (E.BURY, E.MOVE, E.RESCHEDULE)},
}
"""What to do where an event is not allowed: whether the task has ended, and the event."""


class IllegalTransition(PeerdError):
    """The status of a task does not allow the event."""

    def __init__(self, status: Status, event: TaskEvent) -> None:
        self.status = status
        self.event = event
        allowed = " or ".join(", ".join(sources(event)).rsplit(", ", 1))
        remedy = REMEDIES.get((status in FINISHED, event), "")
        super().__init__(f"cannot {event} a task that is {status}; only one that is {allowed}{remedy}")


def sources(event: TaskEvent) -> tuple[Status, ...]:
    """The statuses that allow an event, in the order of the table.

    >>> sources(TaskEvent.COMPLETE)
    (<Status.WORKING: 'working'>,)
    """
    return tuple(status for (status, happened) in TRANSITIONS if happened is event)


def target(event: TaskEvent) -> Status:
    """The status that an event leads to, from every status that allows it.

    Raises:
        ValueError: the event leads to several statuses, or deletes the row.

    >>> target(TaskEvent.CLAIM)
    <Status.WORKING: 'working'>
    """
    match list({target for (_, happened), target in TRANSITIONS.items() if happened is event}):
        case [Status() as only]:
            return only
        case found:
            raise ValueError(f"{event} leads to {found or 'nothing'}, not to one status")


def after(status: Status, event: TaskEvent) -> Status | Gone:
    """The status of a task after an event.

    Raises:
        IllegalTransition: the status does not allow the event.

    >>> after(Status.WORKING, TaskEvent.COMPLETE)
    <Status.DONE: 'done'>
    """
    try:
        return TRANSITIONS[status, event]
    except KeyError:
        raise IllegalTransition(status, event) from None
