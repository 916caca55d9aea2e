"""To whom a message goes: decided from who is there, as values."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Protocol

from peerd.runtime.messages.addressing import WORKER_ROLES, Peer, Target

_MESSAGE_ROLES: Final = (*WORKER_ROLES, "agent")


class RecipientLink(Protocol):
    """The way to a process, such as a `Channel`."""

    @property
    def is_open(self) -> bool:
        """Whether its other end is there."""
        ...

    def send(self, message: Mapping[str, object]) -> bool:
        """Send a frame; return whether there was room for it."""
        ...

    def send_frame(self, frame: bytes, max_unsent: int = ...) -> bool:
        """Send what is a frame already, unless `max_unsent` bytes wait to be read."""
        ...


@dataclass(frozen=True, slots=True)
class Recipient:
    """A living process, as the post knows it. A leaving one finishes its work: it is tainted, recycled, or draining."""

    process: Hashable
    peer: Peer
    link: RecipientLink
    ready: bool = True
    leaving: bool = False

    @property
    def is_available(self) -> bool:
        """Whether it gets what is for all, and may be chosen."""
        return self.ready and not self.leaving

    @property
    def receives_frames(self) -> bool:
        """Whether it hears what its master says: another program does not."""
        return self.peer.role != "command"

    @property
    def is_worker(self) -> bool:
        """Whether it is a worker to messages."""
        return self.peer.role in WORKER_ROLES


@dataclass(frozen=True, slots=True)
class ProcessDirectory:
    """Who is there, and who will be: `expected` are the kind and role of each slot that gets a process, or boots one.

    `known` are kind and role of all slots.
    """

    present: tuple[Recipient, ...] = ()
    expected: frozenset[tuple[str, str]] = frozenset()
    known: frozenset[tuple[str, str]] = frozenset()


class RecipientExpected(StrEnum):
    """There is nobody now."""

    WAIT = "somebody is expected"


class NoRecipient(LookupError):
    """There is nobody whom a message is for, and nobody is expected; the text says why."""


def find_recipients(target: Target, directory: ProcessDirectory) -> tuple[Recipient, ...] | RecipientExpected:
    """Return whom a message is for now; of a target that is a random one, all who may be chosen.

    Raises:
        Nobody: there is nobody, and nobody is expected.
    """
    match target.role:
        case "process":
            return _by_pid(target, directory)
        case "agent":
            return _of_role("agent", directory)
        case _:
            return _workers(target, directory)


def _by_pid(target: Target, directory: ProcessDirectory) -> tuple[Recipient, ...] | RecipientExpected:
    found = next((one for one in directory.present if one.peer.pid == target.pid), None)
    if found is None:
        raise NoRecipient(f"this node has no process {target.pid}")
    if found.peer.role not in _MESSAGE_ROLES:
        raise NoRecipient(f"process {target.pid} is the {found.peer.role}, which takes no messages")
    if not found.ready and found.leaving:
        raise NoRecipient(f"process {target.pid} stops")
    return (found,) if found.ready else RecipientExpected.WAIT


def _of_role(role: str, directory: ProcessDirectory) -> tuple[Recipient, ...] | RecipientExpected:
    found = tuple(one for one in directory.present if one.peer.role == role and one.is_available)
    if found:
        return found
    if any(expected == role for _, expected in directory.expected):
        return RecipientExpected.WAIT
    has_one = any(known == role for _, known in directory.known)
    raise NoRecipient(f"the {role} stops" if has_one else f"this node has no {role}")


def _workers(target: Target, directory: ProcessDirectory) -> tuple[Recipient, ...] | RecipientExpected:
    kinds = sorted({kind for kind, role in directory.known if role in WORKER_ROLES})
    if target.kind is not None and target.kind not in kinds:
        raise NoRecipient(f"this node has no workers of the kind {target.kind!r}; it has {', '.join(kinds) or 'none'}")
    matching = [one for one in directory.present if one.is_available and _matches(one, target)]
    if matching:
        return tuple(matching)
    roles = {role for kind, role in directory.expected if target.kind in (None, kind)}
    if roles & {*WORKER_ROLES, *(["agent"] if target.role == "all" else [])}:
        return RecipientExpected.WAIT
    raise NoRecipient("no process of these is running")


def _matches(one: Recipient, target: Target) -> bool:
    if one.peer.role == "agent":
        return target.role == "all"
    return one.is_worker and target.kind in (None, one.peer.kind)
