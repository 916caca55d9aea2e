"""The node's slots with the processes that are in them now."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from peerd.supervision.cause import Cause
from peerd.supervision.plan import Plan
from peerd.supervision.process import Process
from peerd.supervision.slot import Slot


@dataclass(slots=True)
class Member:
    """A slot, the process that fills it, and former ones that are still finishing their work."""

    slot: Slot
    process: Process | None = None
    leaving: list[Process] = field(default_factory=list)
    last_cause: Cause | None = None
    error: str = ""

    @property
    def is_agent(self) -> bool:
        """Whether it is the agent's."""
        return self.slot.plan.role == "agent"

    @property
    def processes(self) -> list[Process]:
        """All of its living processes."""
        return [*([self.process] if self.process else []), *self.leaving]

    def remove(self, process: Process) -> None:
        """Take out a process that has ended."""
        if self.process is process:
            self.process = None
        else:
            self.leaving.remove(process)

    def to_json(self, now: float) -> dict[str, object]:
        """Return what `status` shows of it."""
        plan, slot, process = self.slot.plan, self.slot, self.process
        wait = None if slot.backoff_until is None else timedelta(seconds=slot.backoff_until - now)
        return {
            "name": plan.name,
            "kind": plan.kind,
            "role": plan.role,
            "state": slot.state.value,
            "pid": process.pid if process else None,
            "generation": slot.generation,
            "restarts": slot.restarts,
            "started_at": process.started_at.isoformat() if process else None,
            "last_cause": self.last_cause.to_json() if self.last_cause else None,
            "backoff_until": None if wait is None else (datetime.now(UTC) + wait).isoformat(),
            "identity": process.identity if process else None,
            "error": self.error or None,
            "leaving": [leaving.pid for leaving in self.leaving],
        }


class Roster:
    """All members of a node."""

    def __init__(self, plan: Plan) -> None:
        self.members = [Member(Slot(slot)) for slot in plan.slots]
        self.agent = next((member for member in self.members if member.is_agent), None)
        self.others = [member for member in self.members if not member.is_agent]

    def processes(self) -> Iterator[Process]:
        """Give all living processes."""
        for member in self.members:
            yield from member.processes

    def pids(self) -> set[int]:
        """Return the process ids of all living processes."""
        return {process.pid for process in self.processes()}

    def deadlines(self) -> Iterator[float]:
        """Give the times at which something must be done."""
        for member in self.members:
            if member.slot.backoff_until is not None:
                yield member.slot.backoff_until
            for process in member.processes:
                if process.kill_at is not None:
                    yield process.kill_at
