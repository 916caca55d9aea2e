"""Reloading: the requests one after another, each with a plan that is computed anew, and followed."""

from __future__ import annotations

from collections.abc import Sequence

from peerd.supervision.alert_forwarding import Alerts
from peerd.supervision.event_loop import Loop
from peerd.supervision.host.listening_sockets import SocketError, Sockets
from peerd.supervision.plan import Plan
from peerd.supervision.processes.process_manager import Keeper
from peerd.supervision.processes.process_table import Roster
from peerd.supervision.reload.planner_process import Planner
from peerd.supervision.reload.rolling_restart import Progress, Reload, Reloads, Request


class Reloading:
    """What the master knows of reloads. `look` may be called at any time, and again, while the node runs.

    Args:
        plan: the one that the node was started with.
        roster: its slots.
        loop: where the planner is heard.
        keeper: replaces processes.
        sockets: what the node listens on.
        alerts: where people are told.
    """

    def __init__(
        self, plan: Plan, roster: Roster, loop: Loop, keeper: Keeper, sockets: Sockets, alerts: Alerts
    ) -> None:
        self._plan = plan
        self._roster = roster
        self._loop = loop
        self._keeper = keeper
        self._sockets = sockets
        self._alerts = alerts
        self._reloads = Reloads()
        self._reload: Reload | None = None
        self._planner: Planner | None = None

    def ask(self, kinds: Sequence[str] | None, *, config_only: bool) -> Request:
        """Note a wish; it is carried out when those before it have ended."""
        return self._reloads.ask(kinds, config_only=config_only)

    def look(self, now: float) -> None:
        """Carry out one request after another: have the plan computed, then follow it."""
        if self._planner:
            self._planner.look(now)
            return
        if self._reload and not self._reload.request.is_over:
            self._reload.look(now)
            return
        if self._reload:
            self._close_unused_sockets()
        self._reload = None
        if request := self._reloads.next():
            self._begin(request, now)

    def give_up(self, error: str) -> None:
        """End all requests that are not over."""
        self._reloads.give_up(error)

    def end(self) -> None:
        """Leave no planner behind."""
        if self._planner:
            self._planner.kill()

    def pids(self) -> set[int]:
        """Process ids of children that are no slot's."""
        return {self._planner.pid} if self._planner else set()

    @property
    def goes_on(self) -> bool:
        """Whether a request is not over."""
        return self._reloads.are_going_on

    def to_json(self) -> list[dict[str, object]]:
        """Return what `status` shows of them, oldest first."""
        return self._reloads.to_json()

    # ---------------------------------------------------------------- steps

    def _begin(self, request: Request, now: float) -> None:
        request.progress = Progress.RUNNING
        self._alerts.say("reloading " + ("everything" if request.kinds is None else ", ".join(request.kinds)))
        if not self._plan.planner:
            self._on_planned(request, self._plan, "")
            return
        try:
            self._planner = Planner(self._plan, self._loop, lambda *came: self._on_planned(request, *came), now)
        except OSError as error:
            self._give_up(request, f"the planner cannot be started: {error}")

    def _on_planned(self, request: Request, plan: Plan | None, error: str) -> None:
        self._planner = None
        if plan is None:
            self._give_up(request, error)
        elif problem := self._why_not(plan, request) or self._why_not_listen(plan, request):
            self._give_up(request, problem)
        else:
            self._reload = Reload(request, plan, self._roster, self._keeper, self._alerts)

    def _why_not(self, plan: Plan, request: Request) -> str:
        """Why a running node cannot become this one."""
        for name in ("node", "run_directory", "project_directory"):
            if getattr(plan, name) != getattr(self._plan, name):
                return f"{name} is {getattr(plan, name)} now: that takes a restart (peerd stop, then start it anew)"
        known = {kind.name for kind in plan.kinds} | self._roster.kinds.keys()
        if unknown := set(request.kinds or ()) - known:
            return f"there is no {', '.join(sorted(unknown))}; only {', '.join(sorted(known))}"
        return ""

    def _why_not_listen(self, plan: Plan, request: Request) -> str:
        """Bind what is added to the kinds that reload; say why that cannot be."""
        added = {name: plan.sockets[name] for kind in plan.kinds if request.wants(kind.name) for name in kind.sockets}
        try:
            self._sockets.apply(self._sockets.plans | added)
        except SocketError as error:
            return str(error)
        return ""

    def _close_unused_sockets(self) -> None:
        used = self._roster.sockets()
        self._sockets.apply({name: plan for name, plan in self._sockets.plans.items() if name in used})

    def _give_up(self, request: Request, error: str) -> None:
        request.progress, request.error = Progress.ABANDONED, error
        text = f"the reload was abandoned, everything goes on as before: {error}"
        self._alerts.say(text)
        self._alerts.about(None, None, "reload-abandoned", text)
