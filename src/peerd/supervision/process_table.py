"""The node's slots and the processes in them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum

from peerd.supervision.child_process import ChildProcess
from peerd.supervision.exits import ExitCause
from peerd.supervision.plan import Kind, Plan
from peerd.supervision.slot import Slot


class ReplacementOutcome(StrEnum):
    """How a replacement has ended."""

    PENDING = "pending"
    DONE = "done"
    ABANDONED = "abandoned"


@dataclass(slots=True)
class Replacement:
    """A request to replace a slot's process by one of this kind, and its outcome.

    Attributes:
        previous_kind: the slot's kind before, which it gets back if the new process fails and no other is left.
    """

    kind: Kind
    reason: ExitCause
    previous_kind: Kind | None = None
    outcome: ReplacementOutcome = ReplacementOutcome.PENDING
    error: str = ""

    def finish(self, outcome: ReplacementOutcome, error: str = "") -> None:
        if self.outcome is ReplacementOutcome.PENDING:
            self.outcome, self.error = outcome, error


@dataclass(slots=True)
class SlotEntry:
    """A slot, its process, a successor that boots to take over, and former processes that still finish their work.

    Attributes:
        wanted: whether the node should have this slot; others are removed when their processes have ended.
    """

    slot: Slot
    process: ChildProcess | None = None
    successor: ChildProcess | None = None
    leaving: list[ChildProcess] = field(default_factory=list)
    replacement: Replacement | None = None
    last_cause: ExitCause | None = None
    error: str = ""
    wanted: bool = True

    @property
    def is_agent(self) -> bool:
        return self.slot.kind.role == "agent"

    @property
    def processes(self) -> list[ChildProcess]:
        return [*(one for one in (self.process, self.successor) if one), *self.leaving]

    def remove(self, process: ChildProcess) -> None:
        if self.process is process:
            self.process = None
        elif self.successor is process:
            self.successor = None
        else:
            self.leaving.remove(process)

    def to_json(self, now: float) -> dict[str, object]:
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
                    "in_flight": (one.vitals or {}).get("in_flight"),
                }
                for one in self.leaving
            ],
        }

    @property
    def replacing(self) -> str | None:
        """A description of its pending replacement."""
        if self.replacement is None or self.replacement.outcome is not ReplacementOutcome.PENDING:
            return None
        if self.successor is None:
            return f"is to be replaced: {self.replacement.reason.text}"
        return f"process {self.successor.pid} boots to take over: {self.replacement.reason.text}"


class ProcessTable:
    """All slots of a node."""

    def __init__(self, plan: Plan) -> None:
        self.kinds = {kind.name: kind for kind in plan.kinds}
        self.entries: list[SlotEntry] = []
        for kind in plan.kinds:
            self.scale(kind, kind.processes)

    @property
    def agent(self) -> SlotEntry | None:
        return next((entry for entry in self.entries if entry.is_agent), None)

    @property
    def others(self) -> list[SlotEntry]:
        return [entry for entry in self.entries if not entry.is_agent]

    def of_kind(self, name: str) -> list[SlotEntry]:
        """The wanted slots of a kind, in the order of their numbers."""
        return [entry for entry in self.entries if entry.slot.kind.name == name and entry.wanted]

    def scale(self, kind: Kind, processes: int) -> list[SlotEntry]:
        """Set the number of slots of a kind; return those that are no longer wanted."""
        self.kinds[kind.name] = kind
        names = {kind.slot_name(number): number for number in range(1, processes + 1)}
        for entry in self.entries:
            if entry.slot.kind.name == kind.name:
                was_wanted, entry.wanted = entry.wanted, entry.slot.name in names
                if entry.wanted and not was_wanted:
                    entry.slot.kind = kind  # its former process still leaves
                names.pop(entry.slot.name, None)
        self.entries += [SlotEntry(Slot(name, kind)) for name in names]
        self.entries.sort(key=self._sort_key)
        return [one for one in self.entries if one.slot.kind.name == kind.name and not one.wanted]

    def remove_kind(self, kind: str) -> list[SlotEntry]:
        """Remove a kind; return its slots, which are no longer wanted."""
        unwanted = self.scale(self.kinds[kind], 0)
        del self.kinds[kind]
        return unwanted

    def drop_unwanted(self) -> None:
        self.entries = [entry for entry in self.entries if entry.wanted or entry.processes]

    def _sort_key(self, entry: SlotEntry) -> tuple[int, int]:
        """Order by the plan's order of kinds, then by slot number."""
        names = list(self.kinds)
        kind = entry.slot.kind.name
        number = entry.slot.name.removeprefix(f"{kind}-")
        return names.index(kind) if kind in names else len(names), int(number) if number.isdigit() else 0

    def processes(self) -> Iterator[ChildProcess]:
        for entry in self.entries:
            yield from entry.processes

    def pids(self) -> set[int]:
        return {process.pid for process in self.processes()}

    def sockets(self) -> set[str]:
        """Return the names of the sockets that its kinds listen on, before and after a change."""
        kinds = [*self.kinds.values(), *(entry.slot.kind for entry in self.entries if entry.wanted)]
        return {name for kind in kinds for name in kind.sockets}

    def find(self, pid: object) -> tuple[SlotEntry, ChildProcess] | None:
        return next(((entry, one) for entry in self.entries for one in entry.processes if one.pid == pid), None)

    def deadlines(self) -> Iterator[float]:
        """Yield the times at which a process must be started or killed."""
        for entry in self.entries:
            if entry.slot.backoff_until is not None:
                yield entry.slot.backoff_until
            yield from (process.kill_at for process in entry.processes if process.kill_at is not None)
