"""Targets and sizes of messages, as both ends of a link use them. Standard library only."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Final

from peerd.domain.quoting import quoted

MAX_MESSAGE_BYTES: Final = 256 * 1024
"""Bytes of a message, or of a reply, as JSON. Messages carry decisions; larger data belongs elsewhere."""
MAX_ACTION_LENGTH: Final = 200
"""Characters of the name of an action."""
MAX_IN_FLIGHT: Final = 1000
"""Messages of one process whose delivery is not known yet."""
MAX_IN_FLIGHT_BYTES: Final = 4 * 1024 * 1024
"""The same, bytes."""
DEFAULT_REPLY_TIMEOUT: Final = 10.0
"""Seconds that a request waits for its reply."""
MAX_REPLY_TIMEOUT: Final = 86_400.0
"""The longest such time that can be given, seconds."""
WEB_ROLE: Final = "web"
"""The role of web processes."""
WORKER_ROLES: Final = ("worker", WEB_ROLE)
"""The roles that are workers to messages: task workers, periodic workers and web processes."""
GATEWAY_ROLE: Final = "gateway"
"""The role of processes that serve queue clients. They get rings, and no messages of users."""
ADDRESSED_ROLES: Final = (*WORKER_ROLES, GATEWAY_ROLE, "agent")
"""Roles of processes that take messages which are addressed to them by their pid."""

_ROLES: Final = ("all", "workers", "agent", "random")


class InvalidTarget(ValueError):
    """A value that is no target of messages."""

    def __init__(self, given: object) -> None:
        super().__init__(f"a message is for {', '.join(_ROLES)}, or a process id; {quoted(given)} is none of these")


@dataclass(frozen=True, slots=True)
class Peer:
    """A process of this node, as a sender or recipient of messages.

    `role` is `agent`, `worker`, `web` or `gateway`; `control` for a message that was sent with the CLI.
    """

    pid: int
    slot: str
    kind: str
    role: str
    generation: int = 1

    def __str__(self) -> str:
        return f"{self.slot} (process {self.pid})"

    def to_json(self) -> dict[str, Any]:
        """The content of a frame."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Target:
    """The recipients of a message.

    >>> str(Target.workers("video")), str(Target.of("agent")), str(Target.of(17))
    ('all workers of video', 'the agent', 'process 17')
    """

    role: str
    kind: str | None = None
    pid: int | None = None

    @classmethod
    def everyone(cls) -> Target:
        """All workers and the agent, the sender included."""
        return cls("all")

    @classmethod
    def workers(cls, kind: str | None = None) -> Target:
        """All workers, or those of one kind, the sender included."""
        return cls("workers", kind=kind)

    @classmethod
    def random(cls, kind: str | None = None) -> Target:
        """One worker, or one of a kind, at random."""
        return cls("random", kind=kind)

    @classmethod
    def agent(cls) -> Target:
        """The agent."""
        return cls("agent")

    @classmethod
    def process(cls, pid: int) -> Target:
        """The process with this process id."""
        return cls("process", pid=pid)

    @classmethod
    def of(cls, given: Target | str | int) -> Target:
        """A target from itself, or from its short form: `"agent"`, `"random"`, or a process id.

        Raises:
            InvalidTarget: it is none of these.
        """
        if isinstance(given, Target):
            return given
        return cls.parse({"role": given} if isinstance(given, str) else {"pid": given})

    @classmethod
    def parse(cls, data: object) -> Target:
        """Read a target from a frame. Raises InvalidTarget."""
        if not isinstance(data, dict):
            raise InvalidTarget(data)
        pid, role, kind = data.get("pid"), data.get("role"), data.get("kind")
        if role is None and isinstance(pid, int) and not isinstance(pid, bool):
            return cls.process(pid)
        is_kind = kind is None or (isinstance(kind, str) and len(kind) <= 200 and role in ("workers", "random"))
        if role not in _ROLES or pid is not None or not is_kind:
            raise InvalidTarget(data)
        return cls(role, kind=kind)

    def to_json(self) -> dict[str, object]:
        """The content of a frame."""
        if self.role == "process":
            return {"pid": self.pid}
        return {"role": self.role} | ({"kind": self.kind} if self.role in ("workers", "random") else {})

    @property
    def is_one(self) -> bool:
        """Whether it is exactly one process, so that a request can be sent to it."""
        return self.role in ("agent", "random", "process")

    def __str__(self) -> str:
        texts = {
            "all": "all workers and the agent",
            "workers": "all workers",
            "random": "one worker",
            "agent": "the agent",
            "process": f"process {self.pid}",
        }
        return f"{texts[self.role]} of {self.kind}" if self.kind else texts[self.role]
