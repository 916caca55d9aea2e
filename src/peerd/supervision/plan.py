"""The plan of a node: which kinds of processes it has. Others compute it, the master believes it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final

from peerd.runtime.messages.frames import MAX_BODY_BYTES, FrameError, encode

ROLES: Final = ("agent", "manager", "watcher", "worker", "web", "command")
SINGLETON_ROLES: Final = ("agent", "manager", "watcher")
"""Roles of which a node has one process at the most; its slot is named like its kind."""

MAX_PAYLOAD_BYTES: Final = MAX_BODY_BYTES // 2
"""Bytes; it travels in one frame with the rest of a kind's plan."""
MAX_PROCESSES: Final = 1000
"""Of a kind, as in the config."""


class PlanError(ValueError):
    """The plan cannot be carried out: which part of it, and why."""


@dataclass(frozen=True, slots=True)
class SocketPlan:
    """A listening socket, which the master binds: where, as `peerd.domain.bind_address` reads it, and how.

    `backlog` connections may wait to be accepted (the kernel allows net.core.somaxconn at the most); `mode` is that of
    a unix socket's file; with `reuse_port` other programs, such as a second node, may listen on the port too.
    """

    bind: str
    backlog: int = 2048
    mode: int = 0o666
    reuse_port: bool = False


@dataclass(frozen=True, slots=True)
class Kind:
    """Processes of one kind: a section of the config, or the agent, or the manager. All times are seconds.

    One of role `command` runs `command`, any program; the others call `entry` (`module:callable`) with `payload` in a
    fresh interpreter. A stop leaves `grace` to running work and then `give_back` for giving the rest back. A slot that
    keeps failing is tried again after `backoff_initial`, doubled each time, at most `backoff_maximum`; one that has
    been ready for `stable_after` starts from nothing again. A process that has said nothing for `silent_after` and is
    stopped, or for three times as long otherwise, is killed; one whose event loop has not answered for `hang_after` is
    replaced (None: it may take its time). Each process inherits the plan's `sockets` of these names.
    """

    name: str
    role: str = "worker"
    processes: int = 1
    entry: str = ""
    payload: Any = None
    command: tuple[str, ...] = ()
    grace: float = 30.0
    give_back: float = 5.0
    boot_timeout: float = 60.0
    backoff_initial: float = 0.5
    backoff_maximum: float = 30.0
    stable_after: float = 10.0
    silent_after: float = 60.0
    hang_after: float | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    sockets: tuple[str, ...] = ()

    @classmethod
    def parse(cls, data: Mapping[str, Any]) -> Kind:
        """Read a kind from the plan's JSON.

        Raises:
            PlanError: a key is missing, unknown, or contradicts another.
        """
        where = f"kind {data.get('name', '?')!r}"
        kind: Kind = _parse(cls, where, _with_tuples(data, "command", "sockets"))
        try:
            size = len(encode({"payload": kind.payload}))
        except FrameError as error:
            raise PlanError(f"{where}: its payload: {error}") from error
        if size > MAX_PAYLOAD_BYTES:
            raise PlanError(f"{where}: its payload has {size} bytes, and {MAX_PAYLOAD_BYTES} are allowed")
        if kind.role not in ROLES:
            raise PlanError(f"{where}: role {kind.role!r} is none of {', '.join(ROLES)}")
        if (kind.role == "command") != bool(kind.command) or (kind.role != "command") != bool(kind.entry):
            raise PlanError(f"{where}: a command has a command line, and every other kind an entry")
        if kind.role == "command" and kind.sockets:
            raise PlanError(f"{where}: a command is given no sockets")
        if not 0 <= kind.processes <= (1 if kind.role in SINGLETON_ROLES else MAX_PROCESSES):
            raise PlanError(f"{where}: {kind.processes} processes of role {kind.role} are not possible")
        return kind

    def slot_name(self, number: int) -> str:
        """Return the name of its slot of a number, from 1.

        Example:
            >>> Kind("video", entry="studio:video").slot_name(2)
            'video-2'
            >>> Kind("agent", role="agent", entry="studio:agent").slot_name(1)
            'agent'
        """
        return self.name if self.role in SINGLETON_ROLES else f"{self.name}-{number}"

    def is_like(self, other: Kind) -> bool:
        """Whether its processes need not be replaced to become those of the other; only their number may differ."""
        return replace(self, processes=0) == replace(other, processes=0)


@dataclass(frozen=True, slots=True)
class Plan:
    """A node: its name, its folders, its kinds; `shutdown_interval` is the longest time between two looks, seconds.

    `planner` is the command line that prints the plan as JSON once more, from a configuration that may have changed; a
    plan without one can be reloaded only as it is.

    All of its processes write to `log_file`, or, where there is none, to what the master was started with; in
    `log_format`, `console` for people or `json`, an object a line. `background`
    says that it was started detached, by `peerd start`.
    """

    node: str
    run_directory: str
    project_directory: str
    kinds: tuple[Kind, ...]
    shutdown_interval: float = 1.0
    grace: float = 30.0
    planner: tuple[str, ...] = ()
    log_file: str | None = None
    log_format: str = "console"
    background: bool = False
    sockets: Mapping[str, SocketPlan] = field(default_factory=dict)

    @classmethod
    def parse(cls, data: Mapping[str, Any]) -> Plan:
        """Read a plan from its JSON.

        Raises:
            PlanError: it is not one; the text says where.
        """
        grace = {"grace": data["grace"]} if "grace" in data else {}
        kinds = tuple(Kind.parse({**grace, **kind}) for kind in data.get("kinds", ()))
        sockets = {
            name: _parse(SocketPlan, f"socket {name!r}", socket) for name, socket in data.get("sockets", {}).items()
        }
        plan: Plan = _parse(cls, "the plan", _with_tuples({**data, "kinds": kinds, "sockets": sockets}, "planner"))
        names = [kind.name for kind in kinds]
        if len(set(names)) < len(names):
            raise PlanError(f"two kinds have the same name: {', '.join(sorted(names))}")
        if sum(kind.role == "agent" for kind in kinds) > 1:
            raise PlanError("a node has one agent")
        if unknown := {name for kind in kinds for name in kind.sockets} - sockets.keys():
            raise PlanError(f"there is no socket {', '.join(sorted(unknown))}")
        return plan


def _with_tuples(data: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """JSON has no tuples."""
    return {**data, **{name: tuple(data.get(name, ())) for name in names}}


def _parse(cls: type[Any], where: str, data: Mapping[str, Any]) -> Any:
    known = {f.name for f in fields(cls)}
    if unknown := data.keys() - known:
        raise PlanError(f"{where}: unknown {', '.join(sorted(unknown))}")
    try:
        return cls(**data)
    except TypeError as error:
        raise PlanError(f"{where}: {error}") from error
