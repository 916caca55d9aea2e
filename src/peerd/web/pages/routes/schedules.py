"""Schedules and their runs."""

from __future__ import annotations

import asyncio
from typing import Final

from starlette.responses import Response

from peerd.web.pages.rendering import PageRequest
from peerd.web.pages.subjects import Subject

RUNS: Final = 50


async def show_schedules(page: PageRequest) -> Response:
    """All schedules of the cluster."""
    states = await page.read("schedules", page.client.schedules.list)
    creating = page.actions.of(Subject.SCHEDULE, page.actor, "create")
    return page.render("schedules.html", "Schedules", states=states, creating=creating, live="type=node")


async def show_schedule(page: PageRequest) -> Response:
    """One schedule: when it ticks, on which nodes, and its latest runs."""
    name, client = page.query.get("name", "") or "", page.client
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
