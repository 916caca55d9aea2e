"""The life of a task as a table: (status, event) → status.

Everything that changes a status reads this table: the store asks it which statuses an event may start from and
where it leads, the error texts name what it allows, the diagram in docs/lifecycle.md is drawn from it, and the tests
walk it. Nothing else changes a status.

``GONE`` is not a status: the row is deleted.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from peerd.domain.errors import PeerdError


class Status(StrEnum):
    """Where a task stands; the words of the ``status`` column."""

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
    """What can happen to a task."""

    STAGE = "arrive"
    """Its start_at has come."""
    POSTPONE = "postpone"
    """It was written as pending although its start_at is ahead."""
    UNBLOCK = "unblock"
    """The tasks that it waited for have ended."""
    CLAIM = "claim"
    """A process takes it."""
    COMPLETE = "complete"
    """Its handler succeeded."""
    FAIL = "fail"
    """Its attempt failed, and another one will follow."""
    DIE = "die"
    """Its attempt failed, and no other one will follow."""
    SNOOZE = "snooze"
    """Its handler asks to be run later; the attempt is not counted."""
    DEFER = "defer"
    """Its process does not know its handler, or its arguments, and leaves it to others; the attempt is not counted."""
    RELEASE = "release"
    """Its holder gives it back; the attempt is not counted."""
    RESCUE = "rescue"
    """Its holder is dead; the attempt is counted."""
    CANCEL = "cancel"
    """Somebody does not want it any more."""
    RETRY = "retry"
    """Somebody wants it to be run again, with all its attempts."""
    MOVE = "move"
    """Somebody gives it to another node."""
    ABANDON = "abandon"
    """Its only node has been silent for too long."""
    BURY = "bury"
    """A queue client sets it aside."""
    KICK = "kick"
    """A queue client takes it back from where it was set aside."""
    EXPIRE = "expire"
    """Its finish_at has come before it was started."""
    PURGE = "purge"
    """It ended long ago."""
    DELETE = "delete"
    """Somebody deletes the row."""


class Gone:
    """The end of a row: it is deleted."""

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
    (S.WORKING, E.COMPLETE): S.DONE,
    (S.WORKING, E.FAIL): S.FAILURE,
    (S.WORKING, E.DIE): S.DEAD,
    (S.WORKING, E.SNOOZE): S.SCHEDULED,
    (S.WORKING, E.DEFER): S.SCHEDULED,
    (S.WORKING, E.RELEASE): S.PENDING,
    (S.WORKING, E.RESCUE): S.FAILURE,
    # somebody intervenes
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
    (S.WORKING, E.BURY): S.BURIED,
    (S.BURIED, E.KICK): S.PENDING,
    # the end of a row
    (S.DONE, E.PURGE): GONE,
    (S.DEAD, E.PURGE): GONE,
    (S.CANCELED, E.PURGE): GONE,
    **{(status, E.DELETE): GONE for status in Status},
}

FINISHED: Final = (S.DONE, S.DEAD, S.CANCELED)
"""Statuses in which a task has ended: no event but a person's leads out of them."""


class IllegalTransition(PeerdError):
    """An event came to a task whose status does not allow it.

    Args:
        status: the status that the task has.
        event: what was asked for.
    """

    def __init__(self, status: Status, event: TaskEvent) -> None:
        self.status = status
        self.event = event
        allowed = ", ".join(source for source in sources(event))
        super().__init__(f"a task that is {status} cannot {event}; only one that is {allowed} can")


def sources(event: TaskEvent) -> tuple[Status, ...]:
    """The statuses that an event may start from, in the order of the table.

    >>> sources(TaskEvent.BURY)
    (<Status.WORKING: 'working'>,)
    """
    return tuple(status for (status, happened) in TRANSITIONS if happened is event)


def targets(event: TaskEvent) -> dict[Status, Status | Gone]:
    """Where an event leads, by the status that it starts from.

    >>> targets(TaskEvent.UNBLOCK)
    {<Status.WAITING: 'waiting'>: <Status.PENDING: 'pending'>}
    """
    return {status: target for (status, happened), target in TRANSITIONS.items() if happened is event}


def target(event: TaskEvent) -> Status:
    """Where an event leads that leads from everywhere to one status.

    Raises:
        ValueError: the event leads to several statuses, or deletes the row.

    >>> target(TaskEvent.CLAIM)
    <Status.WORKING: 'working'>
    """
    found = set(targets(event).values())
    match list(found):
        case [Status() as only]:
            return only
        case _:
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
