"""The node's slots with the processes that are in them now."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum

from peerd.supervision.exits.exit_cause import Cause
from peerd.supervision.plan import Kind, Plan
from peerd.supervision.processes.child_process import Process
from peerd.supervision.processes.slot import Slot


class Outcome(StrEnum):
    """What becomes of a replacement."""

    PENDING = "pending"
    DONE = "done"
    ABANDONED = "abandoned"


@dataclass(slots=True)
class Replacement:
    """A wish to have a new process in a slot, of this kind, and what became of it."""

    kind: Kind
    because: Cause
    former: Kind | None = None
    """What the slot was before; it is that again where the new one fails and nothing else is left."""
    outcome: Outcome = Outcome.PENDING
    error: str = ""

    def end(self, outcome: Outcome, error: str = "") -> None:
        """Say how it went; the first word counts."""
        if self.outcome is Outcome.PENDING:
            self.outcome, self.error = outcome, error


@dataclass(slots=True)
class Member:
    """A slot, the process that fills it, one that boots to take over, and former ones that still finish their work."""

    slot: Slot
    process: Process | None = None
    successor: Process | None = None
    leaving: list[Process] = field(default_factory=list)
    replacement: Replacement | None = None
    last_cause: Cause | None = None
    error: str = ""
    wanted: bool = True
    """Whether the node is to have this slot; one that is not wanted is forgotten when its processes are gone."""

    @property
    def is_agent(self) -> bool:
        """Whether it is the agent's."""
        return self.slot.kind.role == "agent"

    @property
    def processes(self) -> list[Process]:
        """All of its living processes."""
        return [*(one for one in (self.process, self.successor) if one), *self.leaving]

    @property
    def processes_in_the_way(self) -> bool:
        """Whether a former process must have ended before the next one may start: there is one agent only."""
        return self.is_agent and bool(self.leaving)

    def remove(self, process: Process) -> None:
        """Take out a process that has ended."""
        if self.process is process:
            self.process = None
        elif self.successor is process:
            self.successor = None
        else:
            self.leaving.remove(process)

    def to_json(self, now: float) -> dict[str, object]:
        """Return what `status` shows of it."""
        slot, process = self.slot, self.process
        silent_for = process.silent_for(now) if process else None
        wait = None if slot.backoff_until is None else timedelta(seconds=slot.backoff_until - now)
        return {
            "name": slot.name,
            "kind": slot.kind.name,
            "role": slot.kind.role,
            "state": slot.state.value,
            "pid": process.pid if process else None,
            "generation": process.generation if process else slot.generation,
            "restarts": slot.restarts,
            "started_at": process.started_at.isoformat() if process else None,
            "last_cause": self.last_cause.to_json() if self.last_cause else None,
            "backoff_until": None if wait is None else (datetime.now(UTC) + wait).isoformat(),
            "identity": process.identity if process else None,
            "error": self.error or None,
            "vitals": process.vitals if process else None,
            "silent_for": None if silent_for is None else round(silent_for, 1),
            "sample": process.sample if process else None,
            "replacing": self.replacing,
            "successor": self.successor.pid if self.successor else None,
            "leaving": [
                {
                    "pid": one.pid,
                    "generation": one.generation,
                    "started_at": one.started_at.isoformat(),
                    "reason": one.why_it_leaves,
                }
                for one in self.leaving
            ],
        }

    @property
    def replacing(self) -> str | None:
        """What is being done to replace its process, in words."""
        if self.replacement is None or self.replacement.outcome is not Outcome.PENDING:
            return None
        if self.successor is None:
            return f"is to be replaced: {self.replacement.because.text}"
        return f"process {self.successor.pid} boots to take over: {self.replacement.because.text}"


class Roster:
    """All members of a node."""

    def __init__(self, plan: Plan) -> None:
        self.kinds = {kind.name: kind for kind in plan.kinds}
        self.members: list[Member] = []
        for kind in plan.kinds:
            self.scale(kind, kind.processes)

    @property
    def agent(self) -> Member | None:
        """The agent's member."""
        return next((member for member in self.members if member.is_agent), None)

    @property
    def others(self) -> list[Member]:
        """All but the agent."""
        return [member for member in self.members if not member.is_agent]

    def of_kind(self, name: str) -> list[Member]:
        """The members of a kind that are wanted, in the order of their numbers."""
        return [member for member in self.members if member.slot.kind.name == name and member.wanted]

    def scale(self, kind: Kind, processes: int) -> list[Member]:
        """Have so many slots of a kind; return those that are wanted no more."""
        self.kinds[kind.name] = kind
        names = {kind.slot_name(number): number for number in range(1, processes + 1)}
        for member in self.members:
            if member.slot.kind.name == kind.name:
                member.wanted = member.slot.name in names
                names.pop(member.slot.name, None)
        self.members += [Member(Slot(name, kind)) for name in names]
        self.members.sort(key=self._place)
        return [one for one in self.members if one.slot.kind.name == kind.name and not one.wanted]

    def forget(self, kind: str) -> list[Member]:
        """Have no kind of this name any more; return its members, which are not wanted."""
        if kind not in self.kinds:
            return []
        unwanted = self.scale(self.kinds[kind], 0)
        del self.kinds[kind]
        return unwanted

    def drop_the_unwanted(self) -> None:
        """Forget members that are not wanted and have no process."""
        self.members = [member for member in self.members if member.wanted or member.processes]

    def _place(self, member: Member) -> tuple[int, int]:
        """Kinds in the order in which they came, slots by number."""
        names = list(self.kinds)
        kind = member.slot.kind.name
        number = member.slot.name.removeprefix(f"{kind}-")
        return names.index(kind) if kind in names else len(names), int(number) if number.isdigit() else 0

    def processes(self) -> Iterator[Process]:
        """Give all living processes."""
        for member in self.members:
            yield from member.processes

    def pids(self) -> set[int]:
        """Return the process ids of all living processes."""
        return {process.pid for process in self.processes()}

    def sockets(self) -> set[str]:
        """Return the names of the sockets that its kinds listen on, before and after a change."""
        kinds = [*self.kinds.values(), *(member.slot.kind for member in self.members)]
        return {name for kind in kinds for name in kind.sockets}

    def find(self, pid: object) -> tuple[Member, Process] | None:
        """Return the living process of an id, with its member."""
        return next(((m, process) for m in self.members for process in m.processes if process.pid == pid), None)

    def deadlines(self) -> Iterator[float]:
        """Give the times at which something must be done."""
        for member in self.members:
            if member.slot.backoff_until is not None:
                yield member.slot.backoff_until
            for process in member.processes:
                if process.kill_at is not None:
                    yield process.kill_at
