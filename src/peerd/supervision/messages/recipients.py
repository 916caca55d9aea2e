"""Recipients of a message, computed from the processes that the node has at that moment."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from peerd.runtime.messages.addressing import ADDRESSED_ROLES, GATEWAY_ROLE, WORKER_ROLES, Peer, Target
from peerd.supervision.processes.child_process import ChildProcess
from peerd.supervision.processes.process_table import ProcessTable
from peerd.supervision.processes.slot import SlotState

_STATES_WITH_PROCESS: Final = (SlotState.STARTING, SlotState.BACKOFF, SlotState.RUNNING)
"""States of a slot that has a process or will have one."""


class RecipientLink(Protocol):
    """The connection to a process: a `FrameChannel`, or that of an inline node."""

    @property
    def is_open(self) -> bool: ...

    def send(self, message: Mapping[str, object]) -> bool: ...

    def send_frame(self, frame: bytes, max_unsent: int = ...) -> bool: ...


@dataclass(frozen=True, slots=True)
class Recipient:
    """A living process, identified by `process`. A leaving one (tainted, recycled, draining) finishes its work."""

    process: Hashable
    peer: Peer
    link: RecipientLink
    ready: bool = True
    leaving: bool = False

    @property
    def is_available(self) -> bool:
        """Whether it gets broadcasts and can be chosen at random."""
        return self.ready and not self.leaving

    @property
    def is_listed(self) -> bool:
        """Whether other processes know of it: a gateway process that drains is still rung for its clients."""
        return self.ready and (not self.leaving or self.peer.role == GATEWAY_ROLE)


@dataclass(frozen=True, slots=True)
class ProcessDirectory:
    """The processes of a node, the (kind, role) of slots that get a process or boot one, and those of all slots."""

    present: tuple[Recipient, ...] = ()
    expected: frozenset[tuple[str, str]] = frozenset()
    known: frozenset[tuple[str, str]] = frozenset()


class NoRecipient(LookupError):
    """A message has no recipient, and none is expected; the text says why."""


def build_directory(table: ProcessTable) -> ProcessDirectory:
    filled = [entry.slot.kind for entry in table.entries if entry.wanted and entry.slot.state in _STATES_WITH_PROCESS]
    return ProcessDirectory(
        present=tuple(map(as_recipient, table.processes())),
        expected=frozenset((kind.name, kind.role) for kind in filled),
        known=frozenset((kind.name, kind.role) for kind in table.kinds.values()),
    )


def as_recipient(process: ChildProcess) -> Recipient:
    peer = Peer(process.pid, process.slot, process.kind.name, process.kind.role, process.generation)
    leaving = process.asked_to_stop or bool(process.retired)
    return Recipient(process, peer, process.link, process.ready, leaving)


def find_recipients(target: Target, directory: ProcessDirectory) -> tuple[Recipient, ...] | None:
    """Return the recipients of a message, all candidates for a random one; None if one is only expected.

    Raises:
        NoRecipient: there is none, and none is expected.
    """
    if target.role == "process":
        return _find_by_pid(target, directory)
    kinds = sorted({kind for kind, role in directory.known if role in WORKER_ROLES})
    if target.kind is not None and target.kind not in kinds:
        raise NoRecipient(f"this node has no workers of the kind {target.kind!r}; it has {', '.join(kinds) or 'none'}")
    found = [one for one in directory.present if one.is_available and _matches(target, one.peer.kind, one.peer.role)]
    if found:
        return tuple(found)
    if any(_matches(target, kind, role) for kind, role in directory.expected):
        return None
    if target.role != "agent":
        raise NoRecipient("no matching process is running")
    has_agent = any(role == "agent" for _, role in directory.known)
    raise NoRecipient("the agent is stopping" if has_agent else "this node has no agent")


def _find_by_pid(target: Target, directory: ProcessDirectory) -> tuple[Recipient, ...] | None:
    found = next((one for one in directory.present if one.peer.pid == target.pid), None)
    if found is None:
        raise NoRecipient(f"this node has no process {target.pid}")
    if found.peer.role not in ADDRESSED_ROLES:
        raise NoRecipient(f"process {target.pid} is the {found.peer.role}, which takes no messages")
    if not found.ready and found.leaving:
        raise NoRecipient(f"process {target.pid} is stopping")
    return (found,) if found.ready else None


def _matches(target: Target, kind: str, role: str) -> bool:
    if role == "agent":
        return target.role in {"agent", "all"}
    return role in WORKER_ROLES and target.role != "agent" and target.kind in (None, kind)
