"""Reloading: the requests one after another, each with a plan that is computed anew, and followed."""

from __future__ import annotations

from collections.abc import Sequence

from peerd.supervision.alert_forwarding import AlertForwarder
from peerd.supervision.event_loop import SelectorLoop
from peerd.supervision.host.listening_sockets import ListenError, ListeningSockets
from peerd.supervision.plan import Plan
from peerd.supervision.processes.process_manager import ProcessManager
from peerd.supervision.processes.process_table import ProcessTable
from peerd.supervision.reload.planner_process import PlannerProcess
from peerd.supervision.reload.rolling_restart import ReloadProgress, ReloadQueue, ReloadRequest, RollingRestart


class ReloadCoordinator:
    """What the master knows of reloads. `advance` may be called at any time, and again, while the node runs.

    Args:
        plan: the one that the node was started with.
        table: its slots.
        loop: where the planner is heard.
        process_manager: replaces processes.
        sockets: what the node listens on.
        alerts: where people are told.
    """

    def __init__(
        self,
        plan: Plan,
        table: ProcessTable,
        loop: SelectorLoop,
        process_manager: ProcessManager,
        sockets: ListeningSockets,
        alerts: AlertForwarder,
    ) -> None:
        self._plan = plan
        self._table = table
        self._loop = loop
        self._process_manager = process_manager
        self._sockets = sockets
        self._alerts = alerts
        self._reloads = ReloadQueue()
        self._reload: RollingRestart | None = None
        self._planner: PlannerProcess | None = None

    def submit(self, kinds: Sequence[str] | None, *, config_only: bool) -> ReloadRequest:
        """Note a wish; it is carried out when those before it have ended."""
        return self._reloads.submit(kinds, config_only=config_only)

    def advance(self, now: float) -> None:
        """Carry out one request after another: have the plan computed, then follow it."""
        if self._planner:
            self._planner.advance(now)
            return
        if self._reload and not self._reload.request.is_finished:
            self._reload.advance(now)
            return
        if self._reload:
            self._close_unused_sockets()
        self._reload = None
        if request := self._reloads.next():
            self._start(request, now)

    def abandon_all(self, error: str) -> None:
        """End all requests that are not over."""
        self._reloads.abandon_all(error)

    def kill_planner(self) -> None:
        """Leave no planner behind."""
        if self._planner:
            self._planner.kill()

    def pids(self) -> set[int]:
        """Process ids of children that are no slot's."""
        return {self._planner.pid} if self._planner else set()

    @property
    def is_active(self) -> bool:
        """Whether a request is not over."""
        return self._reloads.has_unfinished

    def to_json(self) -> list[dict[str, object]]:
        """Return what `status` shows of them, oldest first."""
        return self._reloads.to_json()

    # ---------------------------------------------------------------- steps

    def _start(self, request: ReloadRequest, now: float) -> None:
        request.progress = ReloadProgress.RUNNING
        self._alerts.log("reloading " + ("everything" if request.kinds is None else ", ".join(request.kinds)))
        if not self._plan.planner:
            self._on_plan_ready(request, self._plan, "")
            return
        try:
            self._planner = PlannerProcess(
                self._plan, self._loop, lambda *result: self._on_plan_ready(request, *result), now
            )
        except OSError as error:
            self._abandon(request, f"the planner cannot be started: {error}")

    def _on_plan_ready(self, request: ReloadRequest, plan: Plan | None, error: str) -> None:
        self._planner = None
        if plan is None:
            self._abandon(request, error)
        elif problem := self._find_conflict(plan, request) or self._bind_added_sockets(plan, request):
            self._abandon(request, problem)
        else:
            self._reload = RollingRestart(request, plan, self._table, self._process_manager, self._alerts)

    def _find_conflict(self, plan: Plan, request: ReloadRequest) -> str:
        """Why a running node cannot become this one."""
        for name in ("node", "run_directory", "project_directory"):
            if getattr(plan, name) != getattr(self._plan, name):
                return f"{name} is {getattr(plan, name)} now: that takes a restart (peerd stop, then start it anew)"
        known = {kind.name for kind in plan.kinds} | self._table.kinds.keys()
        if unknown := set(request.kinds or ()) - known:
            return f"there is no {', '.join(sorted(unknown))}; only {', '.join(sorted(known))}"
        return ""

    def _bind_added_sockets(self, plan: Plan, request: ReloadRequest) -> str:
        """Bind what is added to the kinds that reload; say why that cannot be."""
        added = {
            name: plan.sockets[name] for kind in plan.kinds if request.includes(kind.name) for name in kind.sockets
        }
        try:
            self._sockets.apply(self._sockets.plans | added)
        except ListenError as error:
            return str(error)
        return ""

    def _close_unused_sockets(self) -> None:
        used = self._table.sockets()
        self._sockets.apply({name: plan for name, plan in self._sockets.plans.items() if name in used})

    def _abandon(self, request: ReloadRequest, error: str) -> None:
        request.progress, request.error = ReloadProgress.ABANDONED, error
        text = f"the reload was abandoned, everything goes on as before: {error}"
        self._alerts.log(text)
        self._alerts.raise_alert(None, None, "reload-abandoned", text)
