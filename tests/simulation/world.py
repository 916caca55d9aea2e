"""The scheduler: from a seed it draws which process calls the database next, and the faults.

A step is one call of the store, or the passing of time until the next timer is due. After each step the rules
are checked. Everything that the cluster does between two steps needs no database, so its order does not matter.
"""

from __future__ import annotations

import random
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from itertools import count, pairwise
from typing import Any, Final

from peerd import Context
from peerd.domain.errors import DatabaseUnavailable
from peerd.domain.lifecycle import FINISHED
from peerd.testing.clock import START
from tests.simulation import faults, services, user_actions
from tests.simulation.backing_database import BackingDatabase
from tests.simulation.database import rows_may_be_locked
from tests.simulation.history import ClaimKey, InvariantViolation, SimulationHistory, forbid
from tests.simulation.node import SimulatedNode
from tests.simulation.observer import ObservedTask, Observer
from tests.simulation.plan import NODES, USER_ACTIONS, PlannedEvent, SimulationPlan
from tests.simulation.process import SimulatedProcess
from tests.simulation.queue_clients import SimulatedQueueClient
from tests.simulation.rules import InvariantRules
from tests.simulation.threads import SimulatedThread, StoreCall

CALL_TAKES: Final = (0.0005, 0.05)
SLOW_CALLS: Final = 0.1
SLOW_ANSWERS: Final = 0.1
LONGEST_WAIT: Final = 2.0
"""Seconds after which a waiting call comes before everything else: the database is slow, not unfair."""
BETWEEN_HEARTBEATS: Final = 30.0
"""Seconds between two heartbeats of a manager, at most; two steps of the clock that cancel out are not noticed."""
HEAL_WITHIN: Final = 1800.0
MOST_STEPS: Final = 20_000


class World:
    def __init__(self, plan: SimulationPlan, backing_database: BackingDatabase) -> None:
        random.seed(plan.seed)  # what the code under test draws
        backing_database.prepare(plan.limits)
        self.plan = plan
        self.now = 0.0
        self.history = SimulationHistory()
        self.random = random.Random(plan.seed ^ 0x5EED)
        self.database = backing_database.database
        self.database_away_until = 0.0
        self.processes: list[SimulatedProcess] = []
        self.step_number = 0
        self.next_call_fault: PlannedEvent | None = None
        self.locked_until: dict[int, float] = {}
        self.late: list[tuple[SimulatedProcess, StoreCall]] = []
        """Calls that the server will execute although their callers got an error."""
        self.nodes = [SimulatedNode(self, name, services.slots(plan)) for name in NODES[: plan.nodes]]
        self.caller: SimulatedProcess | None = None
        """The process that makes the present call; None for an action by hand."""
        self.call_name = ""
        self._clock = backing_database.clock
        self._clock_is_ahead = 0.0
        self._clock_steps: list[float] = []
        self._happenings = list(plan.events)
        self.pids = count(1)
        self.lives = count(1)
        self.snoozed: set[int] = set()
        self._broken: InvariantViolation | None = None
        self._observer = Observer(backing_database.path)
        self.rules = InvariantRules(self, self._observer)
        self.clients = [
            SimulatedQueueClient(self, number + 1) for number in range(plan.clients if plan.gateways else 0)
        ]

    def run(self) -> None:
        """Let all happen that the plan says, heal everything, and see that all tasks end."""
        with _hooks_restored(), services.patched_for_simulation(), rows_may_be_locked(self.locked_rows):
            try:
                while self.now < self.plan.seconds:
                    self._apply_due_events()
                    self._step()
                self._heal()
                self._run_to_the_end()
                self.rules.judge_the_end()
            finally:
                self._drop_all()

    def _run_to_the_end(self) -> None:
        deadline = self.now + HEAL_WITHIN
        while left := [row for row in self._observer.rows.values() if row.status not in FINISHED] or self.late:
            takes_long = self.now > deadline or self.step_number > MOST_STEPS
            forbid(takes_long, "a healed cluster does not end its tasks", left)
            self._step()
            self.rules.judge_waiting()

    def _apply_due_events(self) -> None:
        while self._happenings and self._happenings[0].at <= self.now:
            one = self._happenings.pop(0)
            (user_actions if one.what in USER_ACTIONS else faults).apply(self, one)

    def _step(self) -> None:
        self.step_number += 1
        for node in self.nodes:
            node.tick()
        for client in self.clients:
            client.tick()
        living = [process for process in self.processes if process.alive]
        for process in living:
            process.run_until_blocked()
        if self._broken is not None:
            raise self._broken
        waiting = [(process, thread) for process in living for thread in process.calls()]
        urgent = [one for one in waiting if one[1].call and self.now - one[1].call.called_at > LONGEST_WAIT]
        if not waiting or (not urgent and self.random.random() < SLOW_CALLS):
            self._pass_time(short=bool(waiting))
        else:
            self._call(*self.random.choice(urgent or waiting))
        self.rules.judge_step()
        self._run_delayed_calls()

    def _pass_time(self, *, short: bool) -> None:
        timed: list[Any] = [*self.nodes, *self.processes, *self.clients]
        moments = [one.next_event() for one in timed]
        coming = [moment for moment in moments if moment is not None] + [one.at for one in self._happenings[:1]]
        until = max(min(coming, default=self.now + 1.0), self.now) + 1e-6
        self.now = min(until, self.now + LONGEST_WAIT / 4) if short else until
        self._set_clock()

    def _call(self, process: SimulatedProcess, thread: SimulatedThread) -> None:
        call = thread.call
        assert call is not None
        self.now += self.random.uniform(*CALL_TAKES)
        self._set_clock()
        if self.now < self.database_away_until:
            self.note(f"{process} {call.name}: away")
            thread.answer(error=DatabaseUnavailable("the server is away"))
        elif self.next_call_fault is not None and faults.matches_call(self.next_call_fault, call):
            if faults.inject_into_call(self, self.next_call_fault, process, thread, call):
                self.next_call_fault = None
        else:
            slow = self.random.random() < SLOW_ANSWERS
            later = self.now + self.random.uniform(0.0, LONGEST_WAIT) if slow else self.now
            thread.answer(*self.make(process, call), at=later)

    def make(self, process: SimulatedProcess, call: StoreCall) -> tuple[Any, BaseException | None]:
        self.caller, self.call_name = process, call.name
        try:
            value, error = call.make(), None
        except Exception as raised:  # noqa: BLE001 - it is the caller's
            value, error = None, raised
        self.note(f"{process} {call.name}{'' if error is None else f': {error!r}'}")
        self.history.count("calls")
        return value, error

    def _run_delayed_calls(self) -> None:
        if self.late and self.now >= self.database_away_until and self.random.random() < 0.2:
            process, call = self.late.pop(0)
            self.make(process, call)
            self.rules.judge_step()

    def by_hand(self, what: str, act: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        self.caller, self.call_name = None, what
        self._set_clock()
        result = self.database.run(act, *args, **kwargs)
        self.note(f"by hand: {what} {args}")
        self.rules.judge_step()
        return result

    def _heal(self) -> None:
        self.note("no more faults; frozen processes and stopped nodes come back at their times")
        self._happenings.clear()
        self.next_call_fault = None
        self.database_away_until = self.now
        user_actions.restore_service(self)
        for client in self.clients:
            client.drain()

    def _drop_all(self) -> None:
        sys.unraisablehook = lambda unraisable: None  # coroutines and threads are cut off where they stand
        for process in self.processes:
            process.alive = False
            process.loop.halt()
        for process in self.processes:
            process.forget()
        self._observer.close()

    def locked_rows(self) -> set[int]:
        locked = (self._observer.rows.get(one) for one, until in self.locked_until.items() if self.now < until)
        return {row.id for row in locked if row is not None and row.status == "working"}

    def holder_of(self, row: ObservedTask) -> SimulatedProcess | None:
        return next((one for one in self.processes if one.process_id == row.process_id), None)

    def by(self) -> str:
        return f"{self.caller or 'by hand'} in {self.call_name}"

    def note(self, line: str) -> None:
        self.history.note(f"{self.step_number:5} {self.now:9.3f} {line}")

    def adopt(self, process: SimulatedProcess) -> SimulatedProcess:
        self.processes.append(process)
        self.note(f"{process} begins")
        return process

    def database_now(self) -> datetime:
        return START + timedelta(seconds=self.now + self._clock_is_ahead)

    def database_text(self, ago: float = 0.0) -> str:
        """The database's clock, some seconds ago, as SQLite writes it."""
        moment = self.database_now() - timedelta(seconds=ago)
        return f"{moment:%Y-%m-%d %H:%M:%S}.{moment.microsecond // 1000:03d}"

    def step_clock(self, seconds: float) -> None:
        self._clock_is_ahead += seconds
        self._clock_steps.append(self.now)
        self._set_clock()

    @property
    def clock_stepped_at(self) -> float:
        return self._clock_steps[-1] if self._clock_steps else 0.0

    def clock_was_stepped(self, within: float) -> bool:
        """Whether the database's clock was set twice within the last seconds, so quickly that no manager saw it."""
        recent = [step for step in self._clock_steps if step >= self.now - within - BETWEEN_HEARTBEATS]
        return any(later - earlier <= BETWEEN_HEARTBEATS for earlier, later in pairwise(recent))

    def handler_began(self, process: SimulatedProcess, claim: ClaimKey, ctx: Context) -> None:
        if process.alive:
            self.note(f"{process} begins task {claim}")
            self.judge(self.rules.judge_beginning, process, claim, ctx.task.crashes)
            self.history.began.add(claim)
            process.running[claim] = ctx

    def handler_ended(self, process: SimulatedProcess, claim: ClaimKey, how: str) -> None:
        if process.alive:
            self.note(f"{process} ends task {claim}: {how}")
            self.history.ended[claim] = how
            process.running.pop(claim, None)

    def judge(self, rule: Callable[..., None], *args: Any) -> None:
        """Keep a violation found inside the code under test, which would catch it, and raise it after the step."""
        try:
            rule(*args)
        except InvariantViolation as broken:
            self._broken = self._broken or broken

    def _set_clock(self) -> None:
        self._clock.set(self.database_now())


@contextmanager
def _hooks_restored() -> Iterator[None]:
    hooks = sys.unraisablehook, threading.excepthook
    try:
        yield
    finally:
        sys.unraisablehook, threading.excepthook = hooks
