"""Between the keeper and the post: the roster as a directory, and what children say to the post."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from peerd.runtime.messages.addressing import Peer
from peerd.supervision.messages.message_router import Post
from peerd.supervision.messages.recipients import Addressee, Directory
from peerd.supervision.processes.child_process import Process
from peerd.supervision.processes.process_table import Member, Roster
from peerd.supervision.processes.slot import State

_FILLED: Final = (State.STARTING, State.BACKOFF, State.RUNNING)
"""States of a slot that has a process or will have one; a running one may just have lost it, or have it replaced."""


def directory(roster: Roster) -> Directory:
    """Return who is on the roster now."""
    filled = [member.slot.kind for member in roster.members if member.wanted and member.slot.state in _FILLED]
    return Directory(
        present=tuple(map(_addressee, roster.processes())),
        expected=frozenset((kind.name, kind.role) for kind in filled),
        known=frozenset((kind.name, kind.role) for kind in roster.kinds.values()),
    )


def hears(post: Post) -> dict[str, Callable[[Member, Process, Mapping[str, Any]], None]]:
    """Return what is done with each type of message that is the post's."""
    return {
        "message": lambda _, process, message: post.take(_addressee(process), message, time.monotonic()),
        "reply": lambda _, process, message: post.take_reply(_addressee(process), message),
        "taken": lambda _, process, message: post.taken(_addressee(process), message),
    }


def _addressee(process: Process) -> Addressee:
    return Addressee(
        process=process,
        peer=Peer(process.pid, process.slot, process.kind.name, process.kind.role, process.generation),
        link=process.link,
        ready=process.ready,
        leaving=process.asked_to_stop or bool(process.retired),
    )
