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

from peerd.supervision.alert_forwarding import AlertForwarder
from peerd.supervision.exits.exit_cause import REPLACED, SCALED, stop_reason
from peerd.supervision.plan import Kind, Plan
from peerd.supervision.processes.process_manager import ProcessManager
from peerd.supervision.processes.process_table import ProcessTable, Replacement, ReplacementOutcome, SlotEntry
from peerd.supervision.processes.slot import SlotState

ROLES_REPLACED_LAST: Final = ("watcher", "manager", "agent")
"""Roles whose turn comes after all others."""


class ReloadProgress(StrEnum):
    """How far a reload is, with the whole node or with one kind."""

    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    ABANDONED = "abandoned"


@dataclass(slots=True)
class ReloadRequest:
    """What somebody asked for; `kinds` None is all of them, and `config_only` those that the plan changes."""

    number: int
    kinds: tuple[str, ...] | None = None
    config_only: bool = False
    progress: ReloadProgress = ReloadProgress.WAITING
    error: str = ""
    by_kind: dict[str, str] = field(default_factory=dict)

    def includes(self, kind: str) -> bool:
        """Whether it is about a kind."""
        return self.kinds is None or kind in self.kinds

    @property
    def is_finished(self) -> bool:
        """Whether nothing more will come of it."""
        return self.progress in {ReloadProgress.DONE, ReloadProgress.ABANDONED}

    def to_json(self) -> dict[str, object]:
        """Return what `status` shows of it."""
        return {
            "number": self.number,
            "progress": self.progress.value,
            "error": self.error or None,
            "kinds": dict(self.by_kind),
        }


@dataclass(slots=True)
class _ReplacementStep:
    entry: SlotEntry
    kind: Kind
    replacement: Replacement


class RollingRestart:
    """Carries one request out. `advance` may be called at any time, and again."""

    def __init__(
        self,
        request: ReloadRequest,
        plan: Plan,
        table: ProcessTable,
        process_manager: ProcessManager,
        alerts: AlertForwarder,
    ) -> None:
        """Begin: kinds that are new start, those that are gone stop, counts change at once; then one after another."""
        self.request = request
        self._table = table
        self._process_manager = process_manager
        self._alerts = alerts
        self._step: _ReplacementStep | None = None
        request.progress = ReloadProgress.RUNNING
        to_replace = list(self._kinds_to_replace(plan))
        self._apply_plan(plan)
        self._queue = deque(
            (entry, kind)
            for kind in sorted(
                to_replace,
                key=lambda kind: ROLES_REPLACED_LAST.index(kind.role) + 1 if kind.role in ROLES_REPLACED_LAST else 0,
            )
            for entry in table.of_kind(kind.name)
        )
        for kind in to_replace:
            request.by_kind[kind.name] = "waiting"

    def advance(self, now: float) -> None:
        """Go on."""
        while self._step is None or self._is_finished(self._step):
            if not self._queue:
                self._finish()
                return
            entry, kind = self._queue.popleft()
            reason = stop_reason(REPLACED, "replaced by a reload")
            self._step = _ReplacementStep(entry, kind, Replacement(kind, reason))
            self.request.by_kind[kind.name] = f"replacing {entry.slot.name}"
        step = self._step
        has_begun = step.entry.replacement is step.replacement
        if not has_begun and step.entry.replacing is None:  # it was booting, or was being replaced already
            self._process_manager.replace(step.entry, step.replacement, now)

    # ---------------------------------------------------------------- the plan

    def _kinds_to_replace(self, plan: Plan) -> Iterator[Kind]:
        """Kinds whose processes must be new ones; those that have none yet, or lose them, are none of these."""
        for kind in plan.kinds:
            present = self._table.kinds.get(kind.name)
            if present is None or not self.request.includes(kind.name):
                continue
            if not self.request.config_only or not kind.is_like(present):
                yield kind

    def _apply_plan(self, plan: Plan) -> None:
        named = {kind.name: kind for kind in plan.kinds}
        for name in list(self._table.kinds):
            if name not in named and self.request.includes(name):
                self._stop(self._table.remove_kind(name))
                self.request.by_kind[name] = "removed"
        for name, kind in named.items():
            if not self.request.includes(name):
                continue
            present = self._table.kinds.get(name)
            if present is None:
                self._table.scale(kind, kind.processes)
                self.request.by_kind[name] = f"added, {kind.processes} processes"
            elif kind.processes != present.processes:  # else it stays as somebody may have scaled it
                self._stop(self._table.scale(replace(present, processes=kind.processes), kind.processes))
                self.request.by_kind[name] = f"{kind.processes} processes"

    def _stop(self, entries: Sequence[SlotEntry]) -> None:
        for entry in entries:
            if entry.slot.state not in {SlotState.STOPPED, SlotState.DRAINING}:
                self._process_manager.stop(
                    entry, fast=False, reason=stop_reason(SCALED, "the node has no such slot any more")
                )

    # ---------------------------------------------------------------- step by step

    def _is_finished(self, step: _ReplacementStep) -> bool:
        name = step.kind.name
        match step.replacement.outcome:
            case ReplacementOutcome.PENDING:
                return not step.entry.wanted and not step.entry.processes
            case ReplacementOutcome.DONE:
                self._table.kinds[name] = step.kind
                if not any(kind.name == name for _, kind in self._queue):
                    self.request.by_kind[name] = "done"
            case ReplacementOutcome.ABANDONED:
                self._abandon(step)
        return True

    def _abandon(self, step: _ReplacementStep) -> None:
        name, error = step.kind.name, step.replacement.error
        self._queue = deque((entry, kind) for entry, kind in self._queue if kind.name != name)
        self.request.by_kind[name] = f"abandoned: {error}"
        self.request.error = self.request.error or f"{name}: {error}"
        text = f"the reload of {name} was abandoned, the old processes go on: {error}"
        self._alerts.log(text)
        self._alerts.raise_alert(step.entry, None, "reload-abandoned", text)

    def _finish(self) -> None:
        if not self.request.is_finished:
            self.request.progress = ReloadProgress.ABANDONED if self.request.error else ReloadProgress.DONE
            self._alerts.log("reloaded" if not self.request.error else "reloaded, but not everything")


class ReloadQueue:
    """The requests for reloads, one after another; the last ones are remembered for whoever waits for theirs."""

    MAX_KEPT: Final = 20

    def __init__(self) -> None:
        self._last_number = 0
        self._requests: deque[ReloadRequest] = deque()

    def submit(self, kinds: Sequence[str] | None, *, config_only: bool) -> ReloadRequest:
        """Note a wish. One that is waiting already and covers it is the answer to it too."""
        wanted = None if kinds is None else tuple(kinds)
        for request in self._requests:
            if request.progress is ReloadProgress.WAITING and (request.kinds, request.config_only) == (
                wanted,
                config_only,
            ):
                return request
        self._last_number += 1
        self._requests.append(ReloadRequest(self._last_number, wanted, config_only))
        while len(self._requests) > self.MAX_KEPT and self._requests[0].is_finished:
            self._requests.popleft()
        return self._requests[-1]

    @property
    def has_unfinished(self) -> bool:
        """Whether one is not over."""
        return any(not request.is_finished for request in self._requests)

    def next(self) -> ReloadRequest | None:
        """Return the one whose turn it is, if none is running."""
        if any(request.progress is ReloadProgress.RUNNING for request in self._requests):
            return None
        return next((request for request in self._requests if request.progress is ReloadProgress.WAITING), None)

    def abandon_all(self, error: str) -> None:
        """End all that are not over."""
        for request in self._requests:
            if not request.is_finished:
                request.progress, request.error = ReloadProgress.ABANDONED, error

    def to_json(self) -> list[dict[str, object]]:
        """Return what `status` shows of them, oldest first."""
        return [request.to_json() for request in self._requests]
