"""Whether all is well: the first page, with charts of the last hour, day or week, and alerts."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from functools import partial
from typing import Final

from starlette.responses import Response

from peerd.domain.alert import ABOUT_DISKS, OF_STORAGE, AlertKind
from peerd.domain.lifecycle import Status
from peerd.operate.diagnostics.prospect import Prospect
from peerd.operate.figures import Overview, SeriesPoint
from peerd.store.alerts import AlertPage, AlertRecord
from peerd.store.queue_states import DepthPoint
from peerd.store.time_series import SAMPLE
from peerd.web.pages.addresses import Subject
from peerd.web.pages.charts import LineChart, TimeAxis, chart_of_depths, charts_of_attempts
from peerd.web.pages.rendering import PageRequest, status_with, unless_invalid

SPANS: Final = {"1h": "Hour", "1d": "Day", "7d": "Week"}
SECONDS: Final = {"1h": 3600.0, "1d": 86_400.0, "7d": 604_800.0}
GROUPS: Final = {"total": "All", "queue": "Queue", "handler": "Handler", "node": "Node"}
OVERVIEW_FRESH_FOR: Final = 5.0
"""Seconds. What it tells is written every ten to fifteen; the verdict takes a dozen statements and more."""
SHOWN_STATUSES: Final = (
    Status.PENDING,
    Status.WORKING,
    Status.SCHEDULED,
    Status.FAILURE,
    Status.WAITING,
    Status.BURIED,
)


async def show_overview(page: PageRequest) -> Response:
    """The verdict, figures, and charts."""
    span, by = page.choice("span", SPANS), page.choice("by", GROUPS)
    client = page.client
    overview, prospects, loads, charts = await asyncio.gather(
        _read_overview(page),
        read_prospects(page),
        page.read("loads", client.nodes.loads),
        read_charts(page, span, by),
    )
    return page.render(
        "overview.html",
        "Overview",
        overview=overview,
        prospects=prospects,
        loads={load.name: load.running for load in loads},
        charts=charts,
        span=span,
        spans=SPANS,
        by=by,
        groups=GROUPS,
        statuses=SHOWN_STATUSES,
        live="type=queue&type=node&type=alert",
    )


async def _read_overview(page: PageRequest) -> Overview | None:
    """None for an actor of some queues."""
    client = page.client
    return (
        None
        if client.actor.queues is not None
        else await page.read("overview", client.statistics.overview, OVERVIEW_FRESH_FOR)
    )


async def read_prospects(page: PageRequest) -> dict[str, Prospect]:
    """When the waiting tasks of queues are gone, by their samples."""
    return await page.read("prospects", page.client.queues.prospects, SAMPLE)


async def read_charts(page: PageRequest, span: str, by: str, **only: str) -> list[LineChart]:
    """The charts of a time, of what `client.statistics` can select."""
    client = page.client
    given = tuple(sorted(only.items()))
    # An actor of some queues asks for figures that have a queue.
    grouped = "queue" if client.actor.queues is not None and by in {"total", "node"} and "queue" not in only else by
    now = await page.read("now", client.now)
    axis = TimeAxis(now, SECONDS[span])
    has_depths = set(only) <= {"queue"} and (client.actor.queues is None or only)

    def load(seconds: float, step: int, most: int | None) -> Awaitable[Sequence[SeriesPoint]]:
        return client.statistics.series(seconds, by=grouped, step=step, most=most, **only)

    points, depths = await asyncio.gather(
        page.read_series((span, grouped, given), SECONDS[span], now, load),
        _read_depths(page, span, only.get("queue")) if has_depths else _nothing(),
    )
    charts = charts_of_attempts(points, axis)
    return [*charts, chart_of_depths(depths, axis)] if has_depths else charts


async def _nothing() -> Sequence[DepthPoint]:
    return ()


async def _read_depths(page: PageRequest, span: str, queue: str | None) -> Sequence[DepthPoint]:
    client = page.client
    return await page.read(("depths", span, queue), lambda: client.statistics.depths(span, queue=queue))


# ---------------------------------------------------------------- alerts


KINDS: Final = [kind.value for kind in AlertKind if kind not in {AlertKind.RECOVERED, AlertKind.TEST}]
SHOWN: Final = {"all": "All", "on": "On", "past": "Others"}


async def show_alerts(page: PageRequest) -> Response:
    """A page of alerts."""
    shown = page.choice("shown", SHOWN)
    kind, after = page.query.get("kind"), page.query.get("after")
    on = {"on": True, "past": False}.get(shown)
    kinds = None if kind is None else [kind]
    load = partial(page.client.alerts.list, on=on, kinds=kinds, after=after)
    key = ("alerts", on, kind, after)
    found, problem = await unless_invalid(lambda: page.read(key, load), AlertPage(items=[], next=None))
    return page.render(
        "alerts.html",
        "Alerts",
        status_with(problem),
        alerts=[(alert, subject_address(alert)) for alert in found.items],
        next=found.next,
        kinds=KINDS,
        kind=kind,
        shown=shown,
        choices_of_shown=SHOWN,
        problem=problem,
        live="" if after else "type=alert",
    )


def subject_address(alert: AlertRecord) -> str | None:
    """The page of what an alert is about, where it is known by its kind."""
    if alert.kind in OF_STORAGE and alert.kind not in ABOUT_DISKS:
        return "/storage"
    if not alert.subject:
        return None
    if alert.kind.startswith(("backlog", "queue", "failures", "paused")):
        return Subject.QUEUE.page(alert.subject)
    if alert.kind in ABOUT_DISKS:
        return Subject.DISK.page(alert.subject) if alert.subject.isascii() and alert.subject.isdigit() else None
    if alert.kind.startswith("schedule"):
        return Subject.SCHEDULE.page(alert.subject)
    return Subject.NODE.page(alert.subject) if alert.kind.startswith("node") else None
