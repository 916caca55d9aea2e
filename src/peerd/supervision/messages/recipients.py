"""To whom a message goes: decided from who is there, as values."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Protocol

from peerd.runtime.messages.addressing import WORKER_ROLES, Peer, Target

_TAKES_MESSAGES: Final = (*WORKER_ROLES, "agent")


class Way(Protocol):
    """The way to a process, such as a `Channel`."""

    @property
    def is_open(self) -> bool:
        """Whether its other end is there."""
        ...

    def send(self, message: Mapping[str, object]) -> bool:
        """Send a frame; return whether there was room for it."""
        ...

    def send_frame(self, frame: bytes, room: int = ...) -> bool:
        """Send what is a frame already, unless `room` bytes wait to be read."""
        ...


@dataclass(frozen=True, slots=True)
class Addressee:
    """A living process, as the post knows it. A leaving one finishes its work: it is tainted, recycled, or draining."""

    process: Hashable
    peer: Peer
    link: Way
    ready: bool = True
    leaving: bool = False

    @property
    def is_there(self) -> bool:
        """Whether it gets what is for all, and may be chosen."""
        return self.ready and not self.leaving

    @property
    def listens(self) -> bool:
        """Whether it hears what its master says: another program does not."""
        return self.peer.role != "command"

    @property
    def is_worker(self) -> bool:
        """Whether it is a worker to messages."""
        return self.peer.role in WORKER_ROLES


@dataclass(frozen=True, slots=True)
class Directory:
    """Who is there, and who will be: `expected` are the kind and role of each slot that gets a process, or boots one.

    `known` are kind and role of all slots.
    """

    present: tuple[Addressee, ...] = ()
    expected: frozenset[tuple[str, str]] = frozenset()
    known: frozenset[tuple[str, str]] = frozenset()


class Later(StrEnum):
    """There is nobody now."""

    WAIT = "somebody is expected"


class Nobody(LookupError):
    """There is nobody whom a message is for, and nobody is expected; the text says why."""


def receivers(target: Target, directory: Directory) -> tuple[Addressee, ...] | Later:
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


def _by_pid(target: Target, directory: Directory) -> tuple[Addressee, ...] | Later:
    found = next((one for one in directory.present if one.peer.pid == target.pid), None)
    if found is None:
        raise Nobody(f"this node has no process {target.pid}")
    if found.peer.role not in _TAKES_MESSAGES:
        raise Nobody(f"process {target.pid} is the {found.peer.role}, which takes no messages")
    if not found.ready and found.leaving:
        raise Nobody(f"process {target.pid} stops")
    return (found,) if found.ready else Later.WAIT


def _of_role(role: str, directory: Directory) -> tuple[Addressee, ...] | Later:
    found = tuple(one for one in directory.present if one.peer.role == role and one.is_there)
    if found:
        return found
    if any(expected == role for _, expected in directory.expected):
        return Later.WAIT
    has_one = any(known == role for _, known in directory.known)
    raise Nobody(f"the {role} stops" if has_one else f"this node has no {role}")


def _workers(target: Target, directory: Directory) -> tuple[Addressee, ...] | Later:
    kinds = sorted({kind for kind, role in directory.known if role in WORKER_ROLES})
    if target.kind is not None and target.kind not in kinds:
        raise Nobody(f"this node has no workers of the kind {target.kind!r}; it has {', '.join(kinds) or 'none'}")
    fits = [one for one in directory.present if one.is_there and _fits(one, target)]
    if fits:
        return tuple(fits)
    roles = {role for kind, role in directory.expected if target.kind in (None, kind)}
    if roles & {*WORKER_ROLES, *(["agent"] if target.role == "all" else [])}:
        return Later.WAIT
    raise Nobody("no process of these is running")


def _fits(one: Addressee, target: Target) -> bool:
    if one.peer.role == "agent":
        return target.role == "all"
    return one.is_worker and target.kind in (None, one.peer.kind)
