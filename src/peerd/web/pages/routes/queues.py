"""Queues and their limits; schedules and their runs."""

from __future__ import annotations

import asyncio
from typing import Final

from starlette.responses import Response

from peerd.domain.lifecycle import Status
from peerd.web.pages.addresses import Subject, UrlQuery
from peerd.web.pages.rendering import PageRequest
from peerd.web.pages.routes.overview import SPANS, read_charts, read_prospects

NEXT_TASKS: Final = 10
COLUMNS: Final = (Status.PENDING, Status.WORKING, Status.SCHEDULED, Status.FAILURE, Status.BURIED, Status.WAITING)


async def show_queues(page: PageRequest) -> Response:
    """All queues."""
    queues, prospects = await asyncio.gather(page.read("queues", page.client.queues.list), read_prospects(page))
    heads = [(column.capitalize(), "number") for column in COLUMNS]
    return page.render(
        "queues.html", "Queues", queues=queues, prospects=prospects, columns=COLUMNS, heads=heads, live="type=queue"
    )


async def show_queue(page: PageRequest) -> Response:
    """The page of a queue: why it waits, what comes next, its limits and charts."""
    name, span, client = page.name, page.choice("span", SPANS), page.client
    queues, wait, limits, following, charts = await asyncio.gather(
        page.read("queues", client.queues.list),
        page.read(("why", name), lambda: client.queues.why(name)),
        page.read(("limits", name), lambda: client.limits.list(name)),
        page.read(
            ("next of", name),
            lambda: client.tasks.page(queue=name, status=Status.PENDING, limit=NEXT_TASKS, bodies=False),
        ),
        read_charts(page, span, "handler", queue=name),
    )
    state = next((one for one in queues if one.name == name), None)
    is_paused = state is not None and state.paused
    verbs = ["resume" if is_paused else "pause", "kick"]
    return page.render(
        "queue.html",
        f"Queue {name[:60]}",
        name_of_queue=name,
        state=state,
        limits=limits,
        following=following.items,
        charts=charts,
        wait=wait,
        columns=COLUMNS,
        span=span,
        spans=SPANS,
        actions=page.actions.of(Subject.QUEUE, page.actor, *verbs),
        live=UrlQuery((("type", "queue"), ("type", "task"), ("queue", name))).text,
    )


async def show_limits(page: PageRequest) -> Response:
    """All limits, and how much of each is used."""
    limits = await page.read("limits", page.client.limits.list)
    return page.render(
        "limits.html",
        "Limits",
        limits=limits,
        creating=page.actions.of(Subject.LIMIT, page.actor, "set"),
        live="type=queue",
    )


# ---------------------------------------------------------------- schedules


RUNS: Final = 50


async def show_schedules(page: PageRequest) -> Response:
    """All schedules of the cluster."""
    states = await page.read("schedules", page.client.schedules.list)
    creating = page.actions.of(Subject.SCHEDULE, page.actor, "create")
    return page.render("schedules.html", "Schedules", states=states, creating=creating, live="type=node")


async def show_schedule(page: PageRequest) -> Response:
    """The page of a schedule: when it ticks, on which nodes, and its latest runs."""
    name, client = page.name, page.client
    state, runs, nodes = await asyncio.gather(
        page.read(("schedule", name), lambda: client.schedules.get(name)),
        page.read(("runs", name), lambda: client.schedules.runs(name, limit=RUNS)),
        page.read("nodes", client.nodes.list),
    )
    verbs = ["run", "enable" if state.state == "disabled" else "disable", *(["delete"] if state.is_stored else [])]
    return page.render(
        "schedule.html",
        f"Schedule {name[:60]}",
        state=state,
        runs=runs,
        names={node.id: node.name for node in nodes},
        actions=page.actions.of(Subject.SCHEDULE, page.actor, *verbs),
        live="type=node",
    )
