"""How files are kept: what is at risk, what is being done about it, and whether nothing is repaired."""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import Final

import msgspec
from starlette.responses import Response

from peerd.domain.errors import InvalidFilter
from peerd.domain.lifecycle import Status
from peerd.domain.task import Task
from peerd.storage.checking import QUEUE, TaskBody
from peerd.store.files.risks import RISKS, FilesAtRisk, RiskCount
from peerd.web.pages.rendering import PageRequest
from peerd.web.pages.routes.disks import verbs_of
from peerd.web.pages.routes.files import LIVE
from peerd.web.pages.subjects import Subject

RUNNING_TASKS: Final = 30
PAGE_SIZE: Final = 50
HEALTHS: Final = {"all": "All", "at-risk": "At risk", "unreachable": "Unreachable", "lost": "Lost", "whole": "Surplus"}
KINDS_OF_TASKS: Final = {"copy": "copying", "verify": "verifying", "remove": "removing", "sweep": "sweeping"}


class StorageTask(msgspec.Struct, frozen=True):
    """A task of storage that runs: what it does, and to how many contents of which disk, if its body says so."""

    task: Task
    what: str
    disk: int | None
    contents: int | None


async def show_storage(page: PageRequest) -> Response:
    """The overview of storage."""
    client = page.client
    health, after = page.query.get("health", "all"), page.query.get("after")
    health = health if health in HEALTHS else "all"
    wanted = None if health == "all" else health
    problem, at_risk = None, FilesAtRisk({}, [])
    overview, queues, running, nodes = await asyncio.gather(
        page.read("storage", client.files.overview),
        page.read("queues", client.queues.list),
        page.read(
            "running storage tasks",
            lambda: client.tasks.page(queue=QUEUE, status=Status.WORKING, limit=RUNNING_TASKS, bodies=True),
        ),
        page.read("nodes", client.nodes.list),
    )
    try:
        at_risk = await page.read(
            ("at risk", wanted, after),
            lambda: client.files.at_risk(wanted, after=after, limit=PAGE_SIZE, counted=False),
        )
    except InvalidFilter as error:
        problem = str(error)
    silent = [disk for disk in overview.disks if disk.node in overview.braked and "lost" in verbs_of(disk)]
    return page.render(
        "storage.html",
        "Storage",
        HTTPStatus.OK if problem is None else HTTPStatus.UNPROCESSABLE_ENTITY,
        overview=overview,
        at_risk=at_risk,
        health=health,
        healths=HEALTHS,
        problem=problem,
        risks=sum(count.files for count in overview.risks),
        are_risks_cut=any(count.at_least for count in overview.risks),
        risk_counts=[(one, sum_of(overview.risks, one)) for one in RISKS],
        queue=next((one for one in queues if one.name == QUEUE), None),
        queue_name=QUEUE,
        running=[storage_task(task) for task in running.items],
        kick=page.actions.of(Subject.QUEUE, page.actor, "kick"),
        has_more=running.next is not None,
        names={node.id: node.name for node in nodes},
        silent=silent,
        lost_action=page.actions.of(Subject.DISK, page.actor, "lost"),
        live="" if after else f"{LIVE}&type=alert",
    )


def sum_of(risks: list[RiskCount], health: str) -> int:
    """How many files have a health."""
    return sum(count.files for count in risks if count.health == health)


def storage_task(task: Task) -> StorageTask:
    """What a task does; its body may be any text that SQL has written."""
    what = KINDS_OF_TASKS.get(task.name or "", task.name or "a task without a handler")
    try:
        body = msgspec.json.decode(task.body or "", type=TaskBody)
    except (msgspec.MsgspecError, ValueError):
        return StorageTask(task, what, None, None)
    return StorageTask(task, what, body.disk, len(body.files))
