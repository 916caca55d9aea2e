"""The node's slots with the processes that are in them now."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum

from peerd.supervision.exits.exit_cause import ExitCause
from peerd.supervision.plan import Kind, Plan
from peerd.supervision.processes.child_process import ChildProcess
from peerd.supervision.processes.slot import Slot


class ReplacementOutcome(StrEnum):
    """What becomes of a replacement."""

    PENDING = "pending"
    DONE = "done"
    ABANDONED = "abandoned"


@dataclass(slots=True)
class Replacement:
    """A wish to have a new process in a slot, of this kind, and what became of it."""

    kind: Kind
    reason: ExitCause
    previous_kind: Kind | None = None
    """What the slot was before; it is that again where the new one fails and nothing else is left."""
    outcome: ReplacementOutcome = ReplacementOutcome.PENDING
    error: str = ""

    def finish(self, outcome: ReplacementOutcome, error: str = "") -> None:
        """Say how it went; the first word counts."""
        if self.outcome is ReplacementOutcome.PENDING:
            self.outcome, self.error = outcome, error


@dataclass(slots=True)
class SlotEntry:
    """A slot, the process that fills it, one that boots to take over, and former ones that still finish their work."""

    slot: Slot
    process: ChildProcess | None = None
    successor: ChildProcess | None = None
    leaving: list[ChildProcess] = field(default_factory=list)
    replacement: Replacement | None = None
    last_cause: ExitCause | None = None
    error: str = ""
    wanted: bool = True
    """Whether the node is to have this slot; one that is not wanted is forgotten when its processes are gone."""

    @property
    def is_agent(self) -> bool:
        """Whether it is the agent's."""
        return self.slot.kind.role == "agent"

    @property
    def processes(self) -> list[ChildProcess]:
        """All of its living processes."""
        return [*(one for one in (self.process, self.successor) if one), *self.leaving]

    @property
    def must_wait_for_exit(self) -> bool:
        """Whether a former process must have ended before the next one may start: there is one agent only."""
        return self.is_agent and bool(self.leaving)

    def remove(self, process: ChildProcess) -> None:
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
                    "reason": one.leave_reason,
                }
                for one in self.leaving
            ],
        }

    @property
    def replacing(self) -> str | None:
        """What is being done to replace its process, in words."""
        if self.replacement is None or self.replacement.outcome is not ReplacementOutcome.PENDING:
            return None
        if self.successor is None:
            return f"is to be replaced: {self.replacement.reason.text}"
        return f"process {self.successor.pid} boots to take over: {self.replacement.reason.text}"


class ProcessTable:
    """All members of a node."""

    def __init__(self, plan: Plan) -> None:
        self.kinds = {kind.name: kind for kind in plan.kinds}
        self.entries: list[SlotEntry] = []
        for kind in plan.kinds:
            self.scale(kind, kind.processes)

    @property
    def agent(self) -> SlotEntry | None:
        """The agent's member."""
        return next((entry for entry in self.entries if entry.is_agent), None)

    @property
    def others(self) -> list[SlotEntry]:
        """All but the agent."""
        return [entry for entry in self.entries if not entry.is_agent]

    def of_kind(self, name: str) -> list[SlotEntry]:
        """The members of a kind that are wanted, in the order of their numbers."""
        return [entry for entry in self.entries if entry.slot.kind.name == name and entry.wanted]

    def scale(self, kind: Kind, processes: int) -> list[SlotEntry]:
        """Have so many slots of a kind; return those that are wanted no more."""
        self.kinds[kind.name] = kind
        names = {kind.slot_name(number): number for number in range(1, processes + 1)}
        for entry in self.entries:
            if entry.slot.kind.name == kind.name:
                entry.wanted = entry.slot.name in names
                names.pop(entry.slot.name, None)
        self.entries += [SlotEntry(Slot(name, kind)) for name in names]
        self.entries.sort(key=self._sort_key)
        return [one for one in self.entries if one.slot.kind.name == kind.name and not one.wanted]

    def remove_kind(self, kind: str) -> list[SlotEntry]:
        """Have no kind of this name any more; return its members, which are not wanted."""
        if kind not in self.kinds:
            return []
        unwanted = self.scale(self.kinds[kind], 0)
        del self.kinds[kind]
        return unwanted

    def drop_unwanted(self) -> None:
        """Forget members that are not wanted and have no process."""
        self.entries = [entry for entry in self.entries if entry.wanted or entry.processes]

    def _sort_key(self, entry: SlotEntry) -> tuple[int, int]:
        """Kinds in the order in which they came, slots by number."""
        names = list(self.kinds)
        kind = entry.slot.kind.name
        number = entry.slot.name.removeprefix(f"{kind}-")
        return names.index(kind) if kind in names else len(names), int(number) if number.isdigit() else 0

    def processes(self) -> Iterator[ChildProcess]:
        """Give all living processes."""
        for entry in self.entries:
            yield from entry.processes

    def pids(self) -> set[int]:
        """Return the process ids of all living processes."""
        return {process.pid for process in self.processes()}

    def sockets(self) -> set[str]:
        """Return the names of the sockets that its kinds listen on, before and after a change."""
        kinds = [*self.kinds.values(), *(entry.slot.kind for entry in self.entries)]
        return {name for kind in kinds for name in kind.sockets}

    def find(self, pid: object) -> tuple[SlotEntry, ChildProcess] | None:
        """Return the living process of an id, with its member."""
        return next(((m, process) for m in self.entries for process in m.processes if process.pid == pid), None)

    def deadlines(self) -> Iterator[float]:
        """Give the times at which something must be done."""
        for entry in self.entries:
            if entry.slot.backoff_until is not None:
                yield entry.slot.backoff_until
            for process in entry.processes:
                if process.kill_at is not None:
                    yield process.kill_at
