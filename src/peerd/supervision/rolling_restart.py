"""Reload: computes the plan anew and replaces the processes of the node, kind by kind and one after another.

`ReloadCoordinator` carries out one request after another: it has the plan computed by a `PlannerProcess`, because the
master itself loads no configuration, binds new sockets, and advances a `RollingRestart`, which calls
`ProcessManager.replace` for one slot at a time. If the new process of a slot fails, this slot and those of its kind
that were not replaced yet keep their processes and their plan, until the next reload; other kinds continue.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

from peerd.supervision.exits import REPLACED, ExitCause
from peerd.supervision.listening_sockets import ListenError
from peerd.supervision.plan import Kind, Plan, PlanError
from peerd.supervision.process_manager import ProcessManager
from peerd.supervision.process_table import Replacement, ReplacementOutcome, SlotEntry

ROLES_REPLACED_LAST: Final = ("watcher", "manager", "agent")
"""Roles that are replaced after all others, in this order."""

MAX_KEPT_REQUESTS: Final = 20
"""Requests that are kept, finished ones included, for clients that wait for theirs."""

PLANNER_TIMEOUT: Final = 60.0
"""Seconds after which the planner is killed."""
_MAX_ERROR_CHARS: Final = 4000


class ReloadProgress(StrEnum):
    """Progress of a request."""

    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    ABANDONED = "abandoned"


@dataclass(slots=True)
class ReloadRequest:
    """A request to reload `kinds`, None being all; with `config_only` those whose plan has changed."""

    number: int
    kinds: tuple[str, ...] | None = None
    config_only: bool = False
    progress: ReloadProgress = ReloadProgress.WAITING
    error: str = ""
    by_kind: dict[str, str] = field(default_factory=dict)

    def includes(self, kind: str) -> bool:
        return self.kinds is None or kind in self.kinds

    @property
    def is_finished(self) -> bool:
        return self.progress in {ReloadProgress.DONE, ReloadProgress.ABANDONED}

    def to_json(self) -> dict[str, object]:
        kinds = dict(self.by_kind)
        return {"number": self.number, "progress": self.progress.value, "error": self.error or None, "kinds": kinds}


class ReloadCoordinator:
    """The queue of reload requests. `advance` is idempotent, and is called while the node runs."""

    def __init__(self, manager: ProcessManager) -> None:
        self._manager = manager
        self._last_number = 0
        self._requests: deque[ReloadRequest] = deque()
        self._running: RollingRestart | None = None
        self.planner: PlannerProcess | None = None

    def submit(self, kinds: Sequence[str] | None, *, config_only: bool) -> ReloadRequest:
        """Add a request to the queue, or return an equal one that is waiting."""
        wanted = (None if kinds is None else tuple(kinds), config_only)
        for request in self._requests:
            if request.progress is ReloadProgress.WAITING and (request.kinds, request.config_only) == wanted:
                return request
        self._last_number += 1
        self._requests.append(ReloadRequest(self._last_number, *wanted))
        while len(self._requests) > MAX_KEPT_REQUESTS and self._requests[0].is_finished:
            self._requests.popleft()
        return self._requests[-1]

    def advance(self, now: float) -> None:
        """Continue the running request, or begin the next one."""
        if self.planner:
            self.planner.advance(now)
            return
        if self._running and not self._running.request.is_finished:
            self._running.advance(now)
            return
        if self._running:
            self._running = None
            used = self._manager.table.sockets()
            self._manager.sockets.apply(
                {name: plan for name, plan in self._manager.sockets.plans.items() if name in used}
            )
        waiting = (request for request in self._requests if request.progress is ReloadProgress.WAITING)
        if request := next(waiting, None):
            self._start(request, now)

    def abandon_all(self, error: str) -> None:
        for request in self._requests:
            if not request.is_finished:
                request.progress, request.error = ReloadProgress.ABANDONED, error

    @property
    def is_active(self) -> bool:
        return any(not request.is_finished for request in self._requests)

    def to_json(self) -> list[dict[str, object]]:
        return [request.to_json() for request in self._requests]

    # ---------------------------------------------------------------- steps

    def _start(self, request: ReloadRequest, now: float) -> None:
        request.progress = ReloadProgress.RUNNING
        self._manager.console.log("reloading " + ("everything" if request.kinds is None else ", ".join(request.kinds)))
        if not self._manager.plan.planner:
            self._on_plan_ready(request, self._manager.plan, "")
            return
        try:
            self.planner = PlannerProcess(
                self._manager.plan, lambda *result: self._on_plan_ready(request, *result), now
            )
        except OSError as error:
            self._abandon(request, f"the planner cannot be started: {error}")

    def _on_plan_ready(self, request: ReloadRequest, plan: Plan | None, error: str) -> None:
        self.planner = None
        if plan is None:
            self._abandon(request, error)
        elif problem := self._find_conflict(plan, request) or self._bind_added_sockets(plan, request):
            self._abandon(request, problem)
        else:
            self._running = RollingRestart(request, plan, self._manager)

    def _find_conflict(self, plan: Plan, request: ReloadRequest) -> str:
        """Return why a running node cannot adopt this plan."""
        for name in ("node", "run_directory", "project_directory"):
            if getattr(plan, name) != getattr(self._manager.plan, name):
                return f"{name} is {getattr(plan, name)} now: that takes a restart (peerd stop, then start it anew)"
        known = {kind.name for kind in plan.kinds} | self._manager.table.kinds.keys()
        if unknown := set(request.kinds or ()) - known:
            return f"there is no {', '.join(sorted(unknown))}; only {', '.join(sorted(known))}"
        return ""

    def _bind_added_sockets(self, plan: Plan, request: ReloadRequest) -> str:
        """Bind the new sockets of the kinds that are reloaded; return why that fails."""
        kinds = [kind for kind in plan.kinds if request.includes(kind.name)]
        added = {name: plan.sockets[name] for kind in kinds for name in kind.sockets}
        try:
            self._manager.sockets.apply(self._manager.sockets.plans | added)
        except ListenError as error:
            return str(error)
        return ""

    def _abandon(self, request: ReloadRequest, error: str) -> None:
        request.progress, request.error = ReloadProgress.ABANDONED, error
        text = f"the reload was abandoned, the node is unchanged: {error}"
        self._manager.console.log(text)
        self._manager.reports.raise_alert(None, None, "reload-abandoned", text)


class RollingRestart:
    """Carries out one request with a new plan.

    Added kinds start, removed ones stop and changed counts apply at once; then processes are replaced one by one.
    """

    def __init__(self, request: ReloadRequest, plan: Plan, manager: ProcessManager) -> None:
        self.request = request
        self._manager = manager
        self._table = manager.table
        # the slot whose process is being replaced now
        self._step: tuple[SlotEntry, Replacement] | None = None
        last = ROLES_REPLACED_LAST
        kinds = sorted(
            (kind for kind in plan.kinds if request.includes(kind.name) and self._table.of_kind(kind.name)),
            key=lambda kind: last.index(kind.role) + 1 if kind.role in last else 0,
        )
        self._apply_plan(plan)
        self._queue = deque(self._entries_to_replace(kinds))
        request.by_kind |= {kind.name: "waiting" for _, kind in self._queue}

    def advance(self, now: float) -> None:
        """Continue; idempotent."""
        while self._step is None or self._is_finished(*self._step):
            if not self._queue:
                self._finish()
                return
            entry, kind = self._queue.popleft()
            self._step = entry, Replacement(kind, ExitCause(REPLACED, "replaced by a reload"))
            self.request.by_kind[kind.name] = f"replacing {entry.slot.name}"
        entry, replacement = self._step
        if entry.replacement is not replacement and entry.replacing is None:  # else it boots, or is being replaced
            self._manager.replace(entry, replacement, now)

    def _entries_to_replace(self, kinds: Sequence[Kind]) -> Iterator[tuple[SlotEntry, Kind]]:
        """With `config_only` the slots whose plan has changed: a reload that failed may have left some of a kind."""
        for kind in kinds:
            for entry in self._table.of_kind(kind.name):
                if not self.request.config_only or not kind.is_like(entry.slot.kind):
                    yield entry, kind

    def _apply_plan(self, plan: Plan) -> None:
        planned = {kind.name: kind for kind in plan.kinds if self.request.includes(kind.name)}
        for name in [name for name in self._table.kinds if self.request.includes(name) and name not in planned]:
            self._manager.stop_removed(self._table.remove_kind(name), "the node no longer has this slot")
            self.request.by_kind[name] = "removed"
        for name, kind in planned.items():
            present = self._table.kinds.get(name)
            if present is None:
                self._table.scale(kind, kind.processes)
                self.request.by_kind[name] = f"added, {kind.processes} processes"
            elif kind.processes != present.processes:  # else it keeps the number that `peerd scale` may have set
                has_slots = bool(self._table.of_kind(name))
                changed = replace(present, processes=kind.processes) if has_slots else kind
                self._manager.stop_removed(
                    self._table.scale(changed, kind.processes), "the node no longer has this slot"
                )
                self.request.by_kind[name] = f"{kind.processes} processes"
            if not self._table.of_kind(name):  # no process is replaced by one of the new plan
                self._table.kinds[name] = kind

    def _is_finished(self, entry: SlotEntry, replacement: Replacement) -> bool:
        name = replacement.kind.name
        match replacement.outcome:
            case ReplacementOutcome.PENDING:
                return not entry.wanted and not entry.processes
            case ReplacementOutcome.DONE:
                self._table.kinds[name] = replacement.kind
                if not any(kind.name == name for _, kind in self._queue):
                    self.request.by_kind[name] = "done"
            case ReplacementOutcome.ABANDONED:
                self._abandon_kind(entry, name, replacement.error)
        return True

    def _abandon_kind(self, entry: SlotEntry, name: str, error: str) -> None:
        self._queue = deque((entry, kind) for entry, kind in self._queue if kind.name != name)
        self.request.by_kind[name] = f"abandoned: {error}"
        self.request.error = self.request.error or f"{name}: {error}"
        text = f"the reload of {name} was abandoned, the old processes stay: {error}"
        self._manager.console.log(text)
        self._manager.reports.raise_alert(entry, None, "reload-abandoned", text)

    def _finish(self) -> None:
        if not self.request.is_finished:
            self.request.progress = ReloadProgress.ABANDONED if self.request.error else ReloadProgress.DONE
            self._manager.console.log("reloaded" if not self.request.error else "reloaded, except what was abandoned")


# ---------------------------------------------------------------- the planner


class PlannerProcess:
    """A run of a plan's planner. The constructor starts it, or raises OSError.

    It writes into files in memory, and not into pipes, which a program in a session of its own could hold open after
    its end. `on_planned` is called once with the new plan, or with None and the error.
    """

    def __init__(self, plan: Plan, on_planned: Callable[[Plan | None, str], None], now: float) -> None:
        self._on_planned = on_planned
        self._deadline = now + PLANNER_TIMEOUT
        self._output, self._errors = (
            os.fdopen(os.memfd_create(name), "w+b") for name in ("peerd-plan", "peerd-errors")
        )
        self._popen = subprocess.Popen(
            plan.planner,
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=self._errors,
            cwd=plan.project_directory,  # the master's own may have been removed, with an earlier release
            process_group=0,
        )
        self.pid = self._popen.pid

    def advance(self, now: float) -> None:
        """Take its result if it has ended, or its time is over; the signal of its end wakes the master's loop."""
        timed_out = now >= self._deadline
        if timed_out or self._popen.poll() is not None:
            self.kill()
            self._on_planned(*self._read_result(timed_out=timed_out))

    def kill(self) -> None:
        """Kill it with its group, if it has not been reaped: then its process id may be in use again."""
        if self._popen.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)
            self._popen.wait()

    def _read_result(self, *, timed_out: bool) -> tuple[Plan | None, str]:
        with self._output, self._errors:
            self._output.seek(0)
            self._errors.seek(0)
            output, errors = self._output.read(), self._errors.read().decode(errors="replace").strip()
        if timed_out:
            return None, f"the planner took more than {PLANNER_TIMEOUT:g} s"
        if status := self._popen.returncode:
            return None, errors[-_MAX_ERROR_CHARS:] or f"the planner ended with status {status} and printed no error"
        try:
            return Plan.parse(json.loads(output)), ""
        except (PlanError, ValueError, TypeError, AttributeError) as error:
            return None, f"the planner printed no plan: {error}"
