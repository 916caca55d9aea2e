"""The plan of a node: its kinds of processes. `peerd up` and the planner compute it; the master carries it out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final

from peerd.runtime.frames import MAX_BODY_BYTES, FrameError, encode

ROLES: Final = ("agent", "manager", "watcher", "worker", "web", "gateway", "command")
SINGLETON_ROLES: Final = ("agent", "manager", "watcher")
"""Roles with at most one process per node, whose slot has the name of its kind."""

MAX_PAYLOAD_BYTES: Final = MAX_BODY_BYTES // 2
"""Bytes; it is sent in one frame with the rest of a kind's plan."""
MAX_PROCESSES: Final = 1000  # per kind, as in the configuration


class PlanError(ValueError):
    """The plan is invalid; the text says where and why."""


@dataclass(frozen=True, slots=True)
class SocketPlan:
    """A listening socket: where it is bound, as `peerd.domain.bind_address` parses it, and its options.

    `backlog` connections may wait to be accepted (the kernel's maximum is net.core.somaxconn); `mode` is the mode of a
    unix socket's file; with `reuse_port` other programs, such as a second node, may listen on the port too.
    """

    bind: str
    backlog: int = 2048
    mode: int = 0o666
    reuse_port: bool = False


@dataclass(frozen=True, slots=True)
class Kind:
    """Processes of one kind: a section of the configuration, the agent, or the manager. All times are seconds.

    A process of role `command` runs `command`, any program; others call `entry` (`module:callable`) with `payload` in a
    fresh interpreter. A stop leaves `grace` for running work and then `release_time` for releasing the rest. A failing
    slot is started again after `backoff_initial`, doubled each time up to `backoff_maximum`; after `stable_after`
    seconds of being ready its failures are reset. A process that is silent for `silent_after` and is stopped (SIGSTOP),
    or for three times as long otherwise, is killed; one whose event loop does not respond for `hang_after` is replaced
    (None: never). Each process inherits the plan's `sockets` of these names.

    A process that `drains` has no grace when a reload replaces or removes it, or it is scaled away: it serves its
    clients until they have left, or `drain_timeout` is over (None: no limit). The node's stop leaves it its grace.
    """

    name: str
    role: str = "worker"
    processes: int = 1
    entry: str = ""
    payload: Any = None
    command: tuple[str, ...] = ()
    grace: float = 30.0
    release_time: float = 5.0
    boot_timeout: float = 60.0
    backoff_initial: float = 0.5
    backoff_maximum: float = 30.0
    stable_after: float = 10.0
    silent_after: float = 60.0
    hang_after: float | None = None
    drains: bool = False
    drain_timeout: float | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    sockets: tuple[str, ...] = ()

    @classmethod
    def parse(cls, data: Mapping[str, Any]) -> Kind:
        """Parse a kind of the plan's JSON.

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
            raise PlanError(f"{where}: its payload has {size} bytes; {MAX_PAYLOAD_BYTES} are allowed")
        if kind.role not in ROLES:
            raise PlanError(f"{where}: role {kind.role!r} is not one of {', '.join(ROLES)}")
        if (kind.role == "command") != bool(kind.command) or (kind.role != "command") != bool(kind.entry):
            raise PlanError(f"{where}: a command has a command line, and every other kind an entry")
        if kind.role == "command" and kind.sockets:
            raise PlanError(f"{where}: a command is given no sockets")
        if not 0 <= kind.processes <= (1 if kind.role in SINGLETON_ROLES else MAX_PROCESSES):
            raise PlanError(f"{where}: {kind.processes} processes of role {kind.role} are not possible")
        return kind

    def slot_name(self, number: int) -> str:
        """Return the name of its slot with a number, from 1.

        Example:
            >>> Kind("video", entry="studio:video").slot_name(2)
            'video-2'
            >>> Kind("agent", role="agent", entry="studio:agent").slot_name(1)
            'agent'
        """
        return self.name if self.role in SINGLETON_ROLES else f"{self.name}-{number}"

    def is_like(self, other: Kind) -> bool:
        """Whether the other differs in the number of processes at most, so that none needs to be replaced."""
        return replace(self, processes=0) == replace(other, processes=0)


@dataclass(frozen=True, slots=True)
class Plan:
    """A node: its name, folders and kinds. The master's loop waits at most `shutdown_interval` seconds.

    `planner` is the command line that prints the plan anew, as JSON, from a configuration that may have changed;
    without it a reload uses the present plan. All processes write to `log_file`, or to the master's stderr, in
    `log_format`: `console` for text or `json`. `background` is set by `peerd start`.
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
        """Parse a plan's JSON.

        Raises:
            PlanError: it is invalid.
        """
        grace = {"grace": data["grace"]} if "grace" in data else {}
        kinds = tuple(Kind.parse({**grace, **kind}) for kind in data.get("kinds", ()))
        given = data.get("sockets", {})
        sockets = {name: _parse(SocketPlan, f"socket {name!r}", socket) for name, socket in given.items()}
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
    return {**data, **{name: tuple(data.get(name, ())) for name in names}}


def _parse(cls: type[Any], where: str, data: Mapping[str, Any]) -> Any:
    known = {f.name for f in fields(cls)}
    if unknown := data.keys() - known:
        raise PlanError(f"{where}: unknown {', '.join(sorted(unknown))}")
    try:
        return cls(**data)
    except TypeError as error:
        raise PlanError(f"{where}: {error}") from error
