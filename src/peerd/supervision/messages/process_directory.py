"""Between the keeper and the post: the roster as a directory, and what children say to the post."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from peerd.runtime.messages.addressing import Peer
from peerd.supervision.messages.message_router import MessageRouter
from peerd.supervision.messages.recipients import ProcessDirectory, Recipient
from peerd.supervision.processes.child_process import ChildProcess
from peerd.supervision.processes.process_table import ProcessTable, SlotEntry
from peerd.supervision.processes.slot import SlotState

_STATES_WITH_PROCESS: Final = (SlotState.STARTING, SlotState.BACKOFF, SlotState.RUNNING)
"""States of a slot that has a process or will have one; a running one may just have lost it, or have it replaced."""


def build_directory(table: ProcessTable) -> ProcessDirectory:
    """Return who is on the roster now."""
    filled = [entry.slot.kind for entry in table.entries if entry.wanted and entry.slot.state in _STATES_WITH_PROCESS]
    return ProcessDirectory(
        present=tuple(map(_as_recipient, table.processes())),
        expected=frozenset((kind.name, kind.role) for kind in filled),
        known=frozenset((kind.name, kind.role) for kind in table.kinds.values()),
    )


def routing_handlers(router: MessageRouter) -> dict[str, Callable[[SlotEntry, ChildProcess, Mapping[str, Any]], None]]:
    """Return what is done with each type of message that is the post's."""
    return {
        "message": lambda _, process, message: router.route(_as_recipient(process), message, time.monotonic()),
        "reply": lambda _, process, message: router.route_reply(_as_recipient(process), message),
        "taken": lambda _, process, message: router.acknowledge(_as_recipient(process), message),
    }


def _as_recipient(process: ChildProcess) -> Recipient:
    return Recipient(
        process=process,
        peer=Peer(process.pid, process.slot, process.kind.name, process.kind.role, process.generation),
        link=process.link,
        ready=process.ready,
        leaving=process.asked_to_stop or bool(process.retired),
    )
