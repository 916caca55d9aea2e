"""Reload: replaces processes kind by kind, one process after another, and lets the node follow a changed plan.

A kind's first process goes first, alone. If its new generation does not boot, the kind is left as it is, with its old
processes and its old plan; the others go on. A reload that is asked for while one runs begins when that has ended.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

from peerd.supervision.alert_forwarding import Alerts
from peerd.supervision.exits.exit_cause import REPLACED, SCALED, wish
from peerd.supervision.plan import Kind, Plan
from peerd.supervision.processes.process_manager import Keeper
from peerd.supervision.processes.process_table import Member, Outcome, Replacement, Roster
from peerd.supervision.processes.slot import State

LAST: Final = ("watcher", "manager", "agent")
"""Roles whose turn comes after all others."""


class Progress(StrEnum):
    """How far a reload is, with the whole node or with one kind."""

    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    ABANDONED = "abandoned"


@dataclass(slots=True)
class Request:
    """What somebody asked for; `kinds` None is all of them, and `config_only` those that the plan changes."""

    number: int
    kinds: tuple[str, ...] | None = None
    config_only: bool = False
    progress: Progress = Progress.WAITING
    error: str = ""
    by_kind: dict[str, str] = field(default_factory=dict)

    def wants(self, kind: str) -> bool:
        """Whether it is about a kind."""
        return self.kinds is None or kind in self.kinds

    @property
    def is_over(self) -> bool:
        """Whether nothing more will come of it."""
        return self.progress in {Progress.DONE, Progress.ABANDONED}

    def to_json(self) -> dict[str, object]:
        """Return what `status` shows of it."""
        return {
            "number": self.number,
            "progress": self.progress.value,
            "error": self.error or None,
            "kinds": dict(self.by_kind),
        }


@dataclass(slots=True)
class _Step:
    member: Member
    kind: Kind
    replacement: Replacement


class Reload:
    """Carries one request out. `look` may be called at any time, and again."""

    def __init__(self, request: Request, plan: Plan, roster: Roster, keeper: Keeper, alerts: Alerts) -> None:
        """Begin: kinds that are new start, those that are gone stop, counts change at once; then one after another."""
        self.request = request
        self._roster = roster
        self._keeper = keeper
        self._alerts = alerts
        self._step: _Step | None = None
        request.progress = Progress.RUNNING
        to_replace = list(self._kinds_to_replace(plan))
        self._follow(plan)
        self._queue = deque(
            (member, kind)
            for kind in sorted(to_replace, key=lambda kind: LAST.index(kind.role) + 1 if kind.role in LAST else 0)
            for member in roster.of_kind(kind.name)
        )
        for kind in to_replace:
            request.by_kind[kind.name] = "waiting"

    def look(self, now: float) -> None:
        """Go on."""
        while self._step is None or self._has_ended(self._step):
            if not self._queue:
                self._end()
                return
            member, kind = self._queue.popleft()
            because = wish(REPLACED, "replaced by a reload")
            self._step = _Step(member, kind, Replacement(kind, because))
            self.request.by_kind[kind.name] = f"replacing {member.slot.name}"
        step = self._step
        has_begun = step.member.replacement is step.replacement
        if not has_begun and step.member.replacing is None:  # it was booting, or was being replaced already
            self._keeper.replace(step.member, step.replacement, now)

    # ---------------------------------------------------------------- the plan

    def _kinds_to_replace(self, plan: Plan) -> Iterator[Kind]:
        """Kinds whose processes must be new ones; those that have none yet, or lose them, are none of these."""
        for kind in plan.kinds:
            present = self._roster.kinds.get(kind.name)
            if present is None or not self.request.wants(kind.name):
                continue
            if not self.request.config_only or not kind.is_like(present):
                yield kind

    def _follow(self, plan: Plan) -> None:
        named = {kind.name: kind for kind in plan.kinds}
        for name in list(self._roster.kinds):
            if name not in named and self.request.wants(name):
                self._stop(self._roster.forget(name))
                self.request.by_kind[name] = "removed"
        for name, kind in named.items():
            if not self.request.wants(name):
                continue
            present = self._roster.kinds.get(name)
            if present is None:
                self._roster.scale(kind, kind.processes)
                self.request.by_kind[name] = f"added, {kind.processes} processes"
            elif kind.processes != present.processes:  # else it stays as somebody may have scaled it
                self._stop(self._roster.scale(replace(present, processes=kind.processes), kind.processes))
                self.request.by_kind[name] = f"{kind.processes} processes"

    def _stop(self, members: Sequence[Member]) -> None:
        for member in members:
            if member.slot.state not in {State.STOPPED, State.DRAINING}:
                self._keeper.stop(member, fast=False, because=wish(SCALED, "the node has no such slot any more"))

    # ---------------------------------------------------------------- step by step

    def _has_ended(self, step: _Step) -> bool:
        name = step.kind.name
        match step.replacement.outcome:
            case Outcome.PENDING:
                return not step.member.wanted and not step.member.processes
            case Outcome.DONE:
                self._roster.kinds[name] = step.kind
                if not any(kind.name == name for _, kind in self._queue):
                    self.request.by_kind[name] = "done"
            case Outcome.ABANDONED:
                self._abandon(step)
        return True

    def _abandon(self, step: _Step) -> None:
        name, error = step.kind.name, step.replacement.error
        self._queue = deque((member, kind) for member, kind in self._queue if kind.name != name)
        self.request.by_kind[name] = f"abandoned: {error}"
        self.request.error = self.request.error or f"{name}: {error}"
        text = f"the reload of {name} was abandoned, the old processes go on: {error}"
        self._alerts.say(text)
        self._alerts.about(step.member, None, "reload-abandoned", text)

    def _end(self) -> None:
        if not self.request.is_over:
            self.request.progress = Progress.ABANDONED if self.request.error else Progress.DONE
            self._alerts.say("reloaded" if not self.request.error else "reloaded, but not everything")


class Reloads:
    """The requests for reloads, one after another; the last ones are remembered for whoever waits for theirs."""

    REMEMBERED: Final = 20

    def __init__(self) -> None:
        self._last = 0
        self._requests: deque[Request] = deque()

    def ask(self, kinds: Sequence[str] | None, *, config_only: bool) -> Request:
        """Note a wish. One that is waiting already and covers it is the answer to it too."""
        wanted = None if kinds is None else tuple(kinds)
        for request in self._requests:
            if request.progress is Progress.WAITING and (request.kinds, request.config_only) == (wanted, config_only):
                return request
        self._last += 1
        self._requests.append(Request(self._last, wanted, config_only))
        while len(self._requests) > self.REMEMBERED and self._requests[0].is_over:
            self._requests.popleft()
        return self._requests[-1]

    @property
    def are_going_on(self) -> bool:
        """Whether one is not over."""
        return any(not request.is_over for request in self._requests)

    def next(self) -> Request | None:
        """Return the one whose turn it is, if none is running."""
        if any(request.progress is Progress.RUNNING for request in self._requests):
            return None
        return next((request for request in self._requests if request.progress is Progress.WAITING), None)

    def give_up(self, error: str) -> None:
        """End all that are not over."""
        for request in self._requests:
            if not request.is_over:
                request.progress, request.error = Progress.ABANDONED, error

    def to_json(self) -> list[dict[str, object]]:
        """Return what `status` shows of them, oldest first."""
        return [request.to_json() for request in self._requests]
