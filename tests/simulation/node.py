"""A simulated node: what its master does, in short. It starts, replaces, and reports the dead; it never fails alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from peerd.runtime.process import exit_codes
from peerd.shell import ProcessShell
from tests.simulation.plan import NODES
from tests.simulation.process import SimulatedProcess

if TYPE_CHECKING:
    from tests.simulation.world import World

MakeShell = Callable[[SimulatedProcess], ProcessShell]
AGENT: Final = "agent"
GRACE: Final = 20.0
RELEASE_TIME: Final = 5.0
"""Seconds."""


class SimulatedNode:
    def __init__(self, world: World, name: str, slots: Mapping[str, MakeShell]) -> None:
        self.world = world
        self.name = name
        self.slept = 0.0
        """Seconds that its machine was asleep, which its monotonic clock does not count."""
        self.processes: dict[str, SimulatedProcess] = {}
        self._asleep_until = 0.0
        self.up = False
        self.stopping = False
        self.starts_at: float | None = 0.0
        self.slots = slots
        self.incarnation = ""
        self.retired = False
        self._orphans: list[SimulatedProcess] = []
        """Processes of an earlier incarnation, whose master was killed: they stop without a master."""
        self._generations: dict[str, int] = {}
        self._replacements: dict[str, float] = {}
        self._exit_reports: dict[int, dict[str, object]] = {}
        self._last_exit_report = 0
        self.is_ready = False
        """All its processes were ready and have been notified: before that no worker claims."""

    @property
    def has_old_code(self) -> bool:
        """As while new code is deployed node by node; the first node has the new one."""
        plan = self.world.plan
        return self.name in NODES[max(1, plan.nodes - plan.old_nodes) : plan.nodes]

    def start(self) -> None:
        self.incarnation = f"{self.name}-{next(self.world.lives)}"
        self.up, self.stopping, self.is_ready, self.starts_at = True, False, False, None
        for left in (self._exit_reports, self._replacements, self._generations, self.processes):
            left.clear()
        self.world.note(f"{self.name} starts as {self.incarnation}")
        self._spawn(AGENT)

    def kill(self, down_for: float) -> None:
        self._go_down(down_for)
        for process in self._all():
            process.kill("the node was killed")

    def lose_master(self, down_for: float) -> None:
        self._go_down(down_for)
        self._orphans += self.processes.values()
        for process in self._orphans:
            process.link.watch.lost = True
            process.link.watch.ask_to_stop(GRACE)
        self.processes.clear()

    def freeze(self, seconds: float) -> None:
        for process in self._all():
            process.freeze(seconds)

    def sleep(self, seconds: float) -> None:
        self.freeze(seconds)
        until = self.world.now + seconds
        self.slept += max(0.0, until - max(self._asleep_until, self.world.now))
        self._asleep_until = max(self._asleep_until, until)

    def leave(self) -> None:
        if not self.up or self.stopping:
            return
        self.stopping = True
        self.world.note(f"{self.name} stops")
        for process in self._others():
            process.ask_to_stop(GRACE)
        self._stop_agent_at_last()

    def next_event(self) -> float | None:
        moments = (*self._replacements.values(), self.starts_at)
        return min((moment for moment in moments if moment is not None), default=None)

    def tick(self) -> None:
        if self.starts_at is not None and self.world.now >= self.starts_at:
            self.start()
        for slot, moment in list(self._replacements.items()):
            if self.world.now >= moment:
                del self._replacements[slot]
                self._spawn(slot)
        for process in self._all():
            if process.ends_hard_at is not None and self.world.now >= process.ends_hard_at:
                process.kill("out of time")

    def receive_frame(self, process: SimulatedProcess, message: Mapping[str, object]) -> None:
        """A frame from one of them."""
        if process in self._orphans:
            return
        match message.get("type"):
            case "ready":
                self._become_ready(process, message["identity"])
            case "death-acknowledged":
                self._exit_reports.pop(int(str(message["id"])), None)
            case "tainted" | "recycle":
                self.world.note(f"{process} leaves: {message['reason']}")
                self.world.judge(self.world.rules.judge_uncaught, process, str(message["reason"]))
            case "boot-failed" | "crashed" as what:
                self.world.note(f"{process} {what}: {message['error']}")
                if what == "crashed":
                    self.world.judge(self.world.rules.judge_uncaught, process, str(message["error"]))

    def on_process_end(self, process: SimulatedProcess, cause: str) -> None:
        if process in self._orphans:
            self._orphans.remove(process)
        if not self.up or self.processes.get(process.link.slot) is not process:
            return
        del self.processes[process.link.slot]
        self._report_exit(process, cause)
        if self.stopping:
            self._stop_agent_at_last()
        elif not self.is_ready and cause == f"status {exit_codes.BOOT_FAILED}":
            self._go_down(self.world.random.uniform(1.0, 20.0))  # its user, or systemd, starts it again
            for other in list(self.processes.values()):
                other.kill("its node could not start")
        else:
            self._replacements[process.link.slot] = self.world.now + self.world.random.uniform(0.0, 2.0)

    def _become_ready(self, process: SimulatedProcess, identity: Any) -> None:
        process.ready, process.identity = True, identity
        if process.link.slot == AGENT:
            for message in self._exit_reports.values():
                process.link.watch.post(dict(message))
            if not self._others():
                for slot in self.slots:
                    if slot != AGENT:
                        self._spawn(slot)
                return
        ready = [one for one in self.processes.values() if one.ready]
        told = [process] if self.is_ready else ready if len(ready) == len(self.slots) else []
        self.is_ready = bool(told)
        for one in told:
            one.link.watch.post({"type": "ready"})

    def _spawn(self, slot: str) -> None:
        if not self.up or self.stopping:
            return
        generation = self._generations[slot] = self._generations.get(slot, 0) + 1
        kind = slot.rpartition("-")[0] or slot
        role = kind if kind in (AGENT, "manager", "gateway") else "worker"
        identity = {"slot": slot, "kind": kind, "role": role, "node": self.name, "generation": generation}
        identity |= {"grace": GRACE, "release_time": RELEASE_TIME}
        self.processes[slot] = self.world.adopt(SimulatedProcess(self.world, self, identity, self.slots[slot]))

    def _all(self) -> list[SimulatedProcess]:
        return [*self.processes.values(), *self._orphans]

    def _others(self) -> list[SimulatedProcess]:
        return [process for slot, process in self.processes.items() if slot != AGENT]

    def _stop_agent_at_last(self) -> None:
        if self._others():
            return
        agent = self.processes.get(AGENT)
        if agent is not None:
            agent.ask_to_stop(GRACE)
        else:
            self._go_down(self.world.random.uniform(1.0, 30.0))

    def _go_down(self, seconds: float) -> None:
        self.up = False
        self.starts_at = None if self.retired else self.world.now + seconds

    def _report_exit(self, process: SimulatedProcess, cause: str) -> None:
        self._last_exit_report += 1
        message: dict[str, object] = {
            "type": "death",
            "id": self._last_exit_report,
            "slot": process.link.slot,
            "kind": process.link.kind,
            "role": process.link.role,
            "pid": process.pid,
            "identity": process.identity,
            "expected": process.asked_to_stop,
            "cause": {"kind": "signal", "status": None, "signal": "SIGKILL", "text": cause},
        }
        self._exit_reports[self._last_exit_report] = message
        agent = self.processes.get(AGENT)
        if agent is not None and agent.ready:
            agent.link.watch.post(dict(message))
