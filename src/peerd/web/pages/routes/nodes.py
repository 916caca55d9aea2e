"""Nodes, their processes, and requests to them."""

from __future__ import annotations

import asyncio
import json
from datetime import datetime
from typing import Any, Final

from starlette.responses import Response

from peerd.domain.access import Right
from peerd.domain.errors import NodeRequestFailed, NodeRequestUnfinished, NodeUnreachable
from peerd.domain.lifecycle import Status
from peerd.store.processes import ProcessRecord, process_state
from peerd.web.pages.addresses import Subject
from peerd.web.pages.rendering import PageRequest
from peerd.web.pages.routes.overview import SPANS, read_charts

STATE_TIMEOUT: Final = 3.0
"""Seconds that a page waits for the live state of a node."""
RUNNING_TASKS: Final = 50
MOST_PROCESSES: Final = 1_000
ENDED_PROCESSES: Final = 20


async def show_nodes(page: PageRequest) -> Response:
    """All nodes, and how busy they are."""
    client = page.client
    nodes, loads = await asyncio.gather(page.read("nodes", client.nodes.list), page.read("loads", client.nodes.loads))
    return page.render("nodes.html", "Nodes", nodes=nodes, loads={load.name: load for load in loads}, live="type=node")


async def show_node(page: PageRequest) -> Response:
    """The page of a node: its processes, what it runs, and what has ended.

    The state of its slots is asked of the node itself, which may take a while: the page loads it afterwards.
    """
    name, span, client = page.name, page.choice("span", SPANS), page.client
    node = await page.read(("node", name), lambda: client.nodes.get(name))
    running, processes, loads, charts = await asyncio.gather(
        page.read(
            ("running on", name),
            lambda: client.tasks.page(
                status=Status.WORKING, where=[f"worker_node_id={node.id}"], limit=RUNNING_TASKS, bodies=False
            ),
        ),
        page.read("all processes", lambda: client.nodes.processes(ended=True)),
        page.read("loads", client.nodes.loads),
        read_charts(page, span, "queue", node=name),
    )
    mine = [one for one in processes if one.node_id == node.id]
    ended = sorted((one for one in mine if one.ended_at is not None), key=_ended_at, reverse=True)[:ENDED_PROCESSES]
    verbs = ["undrain" if node.draining else "drain", "reload", "scale"] if node.active else ["forget"]
    return page.render(
        "node.html",
        f"Node {name[:60]}",
        node=node,
        may_ask=node.active and page.actor.may(Right.VIEW) and page.actor.queues is None,
        running=running.items,
        has_more=running.next is not None,
        living=[(one, process_state(one, node)) for one in mine if one.ended_at is None],
        ended=ended,
        load=next((load for load in loads if load.name == name), None),
        charts=charts,
        span=span,
        spans=SPANS,
        actions=page.actions.of(Subject.NODE, page.actor, *verbs),
        live="type=node&type=task&status=working",
    )


def _ended_at(process: ProcessRecord) -> datetime:
    assert process.ended_at is not None
    return process.ended_at


async def show_state(page: PageRequest) -> Response:
    """The slots of a node, as the node itself answers."""
    name, state, problem = page.name, None, None
    try:
        state = await page.read(("state", name), lambda: page.client.nodes.state(name, timeout=STATE_TIMEOUT))
    except (NodeUnreachable, NodeRequestFailed, NodeRequestUnfinished) as error:
        problem = str(error)
    return page.render("node_state.html", f"State of {name[:60]}", name_of_node=name, state=state, problem=problem)


async def show_processes(page: PageRequest) -> Response:
    """The processes of all nodes; those that have ended, with their causes."""
    client, with_ended = page.client, page.query.get("ended") == "1"
    nodes, processes, lost = await asyncio.gather(
        page.read("nodes", client.nodes.list),
        page.read(("processes", with_ended), lambda: client.nodes.processes(ended=with_ended)),
        page.read("lost tasks", client.nodes.lost_tasks),
    )
    by_id = {node.id: node for node in nodes}
    names = {node.id: node.name for node in nodes}
    living = [one for one in processes if one.ended_at is None]
    living.sort(key=lambda one: (names.get(one.node_id, ""), one.kind, one.slot))
    ended = [one for one in processes if one.ended_at is not None]
    shown = [*sorted(ended, key=_ended_at, reverse=True), *living]
    return page.render(
        "processes.html",
        "Processes",
        processes=shown[:MOST_PROCESSES],
        are_cut=len(shown) > MOST_PROCESSES,
        names=names,
        lost=lost,
        states={one.id: process_state(one, by_id.get(one.node_id)) for one in shown},
        with_ended=with_ended,
        live="type=node",
    )


async def show_request(page: PageRequest) -> Response:
    """What has become of a request to a node."""
    request = await page.client.nodes.get_request(page.request.path_params["key"])
    result: Any = None if request.result is None or request.is_open else json.loads(request.result)
    return page.render(
        "node_request.html", f"Request {request.id}", node_request=request, result=result, live="type=node"
    )
