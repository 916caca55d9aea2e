"""The first page: whether all is well, and charts of the last hour, day or week."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from starlette.responses import Response

from peerd.domain.lifecycle import Status
from peerd.operate.figures import Overview
from peerd.store.statistics.depths import DepthPoint
from peerd.web.pages.charts.lines import LineChart
from peerd.web.pages.charts.series import TimeAxis, chart_of_depths, charts_of_attempts
from peerd.web.pages.rendering import PageRequest

SPANS: Final = {"1h": "Hour", "1d": "Day", "7d": "Week"}
SECONDS: Final = {"1h": 3600.0, "1d": 86_400.0, "7d": 604_800.0}
GROUPS: Final = {"total": "All", "queue": "Queue", "handler": "Handler", "node": "Node"}
MOST_ALERTS: Final = 20
SHOWN_STATUSES: Final = (
    Status.PENDING,
    Status.WORKING,
    Status.SCHEDULED,
    Status.FAILURE,
    Status.WAITING,
    Status.BURIED,
)


async def show_overview(page: PageRequest) -> Response:
    """Figures, problems, alerts that are on, and charts."""
    span, by = _choice(page, "span", SPANS), _choice(page, "by", GROUPS)
    client = page.client
    overview: Overview | None = None
    loads: dict[str, int] = {}
    if client.actor.queues is None:
        overview = await page.read("overview", client.statistics.overview)
        loads = {load.name: load.running for load in await page.read("loads", client.nodes.loads)}
    alerts, charts = await asyncio.gather(
        page.read("alerts that are on", lambda: client.alerts.list(on=True, limit=MOST_ALERTS)),
        read_charts(page, span, by),
    )
    return page.render(
        "overview.html",
        "Overview",
        overview=overview,
        loads=loads,
        alerts=alerts,
        charts=charts,
        span=span,
        spans=SPANS,
        by=by,
        groups=GROUPS,
        statuses=SHOWN_STATUSES,
        live="type=queue&type=node&type=alert",
    )


async def read_charts(page: PageRequest, span: str, by: str, **only: str) -> list[LineChart]:
    """The charts of a time, of what `client.statistics` can select."""
    client = page.client
    given = tuple(sorted(only.items()))
    # An actor of some queues asks for figures that have a queue.
    grouped = "queue" if client.actor.queues is not None and by in {"total", "node"} and "queue" not in only else by
    points = await page.read(
        ("series", span, grouped, given), lambda: client.statistics.series(span, by=grouped, **only)
    )
    axis = TimeAxis(await page.read("now", client.now), SECONDS[span])
    charts = charts_of_attempts(points, axis)
    if set(only) <= {"queue"} and (client.actor.queues is None or only):
        charts.append(chart_of_depths(await _read_depths(page, span, only.get("queue")), axis))
    return charts


async def _read_depths(page: PageRequest, span: str, queue: str | None) -> Sequence[DepthPoint]:
    client = page.client
    return await page.read(("depths", span, queue), lambda: client.statistics.depths(span, queue=queue))


def _choice(page: PageRequest, name: str, known: dict[str, str]) -> str:
    given = page.query.get(name)
    return given if given in known else next(iter(known))
