"""Storage: what is at risk and what is being done about it, disks, buckets, files and their contents."""

from __future__ import annotations

import asyncio
from functools import partial
from http import HTTPStatus
from typing import Final
from urllib.parse import quote

import msgspec
from starlette.responses import Response

from peerd.domain.errors import PeerdError
from peerd.domain.file_errors import DiskNotFound
from peerd.domain.files import DiskState
from peerd.domain.lifecycle import Status
from peerd.domain.task import Task
from peerd.storage.checking import QUEUE, TaskBody
from peerd.storage.overview import DiskCondition, DiskFigures
from peerd.store.files.risks import RISKS, FilesAtRisk, RiskCount
from peerd.web.downloads import content_response
from peerd.web.pages.addresses import Subject, folder_of, list_address
from peerd.web.pages.headers import FILE_HEADERS
from peerd.web.pages.rendering import PageRequest, error_page, plain_error_page, status_with, unless_invalid
from peerd.web.problems import status_of

RUNNING_TASKS: Final = 30
RISKS_OF_A_PAGE: Final = 50
HEALTHS: Final = {"all": "All", "at-risk": "At risk", "unreachable": "Unreachable", "lost": "Lost", "whole": "Surplus"}
KINDS_OF_TASKS: Final = {"copy": "copying", "verify": "verifying", "remove": "removing", "sweep": "sweeping"}


class StorageTask(msgspec.Struct, frozen=True):
    """A task of storage that runs: what it does, to how many contents, and on which disk, if its body says so."""

    task: Task
    what: str
    disk: int | None
    contents: int | None


async def show_storage(page: PageRequest) -> Response:
    """The overview of storage."""
    client = page.client
    health, after = page.choice("health", HEALTHS), page.query.get("after")
    wanted = None if health == "all" else health
    overview, queues, running, nodes = await asyncio.gather(
        page.read("storage", client.files.overview),
        page.read("queues", client.queues.list),
        page.read(
            "running storage tasks",
            lambda: client.tasks.page(queue=QUEUE, status=Status.WORKING, limit=RUNNING_TASKS, bodies=True),
        ),
        page.read("nodes", client.nodes.list),
    )
    load = partial(client.files.at_risk, wanted, after=after, limit=RISKS_OF_A_PAGE, counted=False)
    at_risk, problem = await unless_invalid(lambda: page.read(("at risk", wanted, after), load), FilesAtRisk({}, []))
    silent = [disk for disk in overview.disks if disk.node in overview.braked and "lost" in verbs_of(disk)]
    return page.render(
        "storage.html",
        "Storage",
        status_with(problem),
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


# ---------------------------------------------------------------- disks


VERBS = {
    DiskState.ACTIVE: ("drain", "readonly"),
    DiskState.READONLY: ("activate", "drain"),
    DiskState.DRAIN: ("activate",),
    DiskState.LOST: ("remove",),
}


async def show_disks(page: PageRequest) -> Response:
    """All disks."""
    overview = await page.read("storage", page.client.files.overview)
    return page.render("disks.html", "Disks", disks=overview.disks, live=LIVE)


async def show_disk(page: PageRequest) -> Response:
    """The page of a disk."""
    number: int = page.request.path_params["key"]
    overview = await page.read("storage", page.client.files.overview)
    disk = next((one for one in overview.disks if one.id == number), None)
    if disk is None:
        raise DiskNotFound(number, [one.id for one in overview.disks])
    return page.render(
        "disk.html",
        f"Disk {number}",
        disk=disk,
        grace=overview.grace,
        actions=page.actions.of(Subject.DISK, page.actor, *verbs_of(disk)),
        live=LIVE,
    )


def verbs_of(disk: DiskFigures) -> list[str]:
    """What can be done to a disk in its state; only one that cannot be used can be declared lost."""
    verbs = [*VERBS[DiskState(disk.state)]]
    may_be_lost = disk.condition is not DiskCondition.ONLINE or disk.problem is not None
    return [*verbs, "lost"] if may_be_lost and disk.condition is not DiskCondition.LOST else verbs


# ---------------------------------------------------------------- files


PAGE_SIZE: Final = 100
MOST_FOLDERS: Final = 20
"""Folders of a key that are links."""
VIEWS: Final = {"folders": "Folders", "keys": "All keys"}
LIVE: Final = "type=task&queue=storage"
"""Tasks of storage that begin and end show that copies have changed."""


async def show_buckets(page: PageRequest) -> Response:
    """All buckets."""
    buckets = await page.read("buckets", page.client.buckets.list)
    return page.render("buckets.html", "Files", buckets=buckets, live=LIVE)


async def show_files(page: PageRequest) -> Response:
    """A page of the files of a bucket."""
    bucket, prefix = page.query.get("bucket", "") or "", page.query.get("prefix", "") or ""
    after, view = page.query.get("after") or "", page.choice("view", VIEWS)
    delimiter = "/" if view == "folders" else ""
    found = await page.read(
        ("files", bucket, prefix, after, delimiter),
        lambda: page.client.files.kept(bucket, prefix, after=after, delimiter=delimiter, limit=PAGE_SIZE),
    )
    return page.render(
        "files.html",
        f"Files of {bucket[:60]}",
        bucket=bucket,
        prefix=prefix,
        found=found,
        folders=folders_of(bucket, prefix),
        view=view,
        views=VIEWS,
        folder=folder_of(prefix),
        list_address=list_address,
        live="" if after else LIVE,
    )


async def show_file(page: PageRequest) -> Response:
    """The page of a file and its copies."""
    path = page.name
    status = await page.read(("file", path), lambda: page.client.files.stat(path))
    return page.render(
        "file.html",
        f"File {path[-60:]}",
        path_of_file=path,
        status=status,
        file=status.file,
        folders=folders_of(status.file.bucket, folder_of(status.file.key)),
        name_in_folder=status.file.key[len(folder_of(status.file.key)) :] or status.file.key,
        actions=page.actions.of(Subject.FILE, page.actor, "verify", "delete"),
        live=LIVE,
    )


async def download_file(page: PageRequest) -> Response:
    """The content of a file; nodes verify what they send, and a file that is damaged everywhere is cut off."""
    path = page.name
    name = path.rstrip("/").rpartition("/")[2] or "file"
    headers = {  # a file is saved and never shown: it may be anything, and what it says of itself is not believed
        **FILE_HEADERS,
        "content-type": "application/octet-stream",
        "content-disposition": f"attachment; filename*=UTF-8''{quote(name, safe='')}",
        "x-content-type-options": "nosniff",
    }
    try:
        return await content_response(page.request, await page.client.files.open(path), headers)
    except PeerdError as error:
        if status_of(error) is None:
            return plain_error_page(page, HTTPStatus.SERVICE_UNAVAILABLE, str(error))
        return error_page(page, error)


def folders_of(bucket: str, prefix: str) -> list[tuple[str, str]]:
    """The folders above, with their addresses, the bucket first.

    >>> folders_of("films", "2026/raw/")
    [('films', '/files/list?bucket=films'), ('2026/', '/files/list?bucket=films&prefix=2026%2F'), \
('raw/', '/files/list?bucket=films&prefix=2026%2Fraw%2F')]
    """
    found = [(bucket, list_address(bucket))]
    end = 0
    while (slash := prefix.find("/", end)) >= 0 and len(found) <= MOST_FOLDERS:
        found.append((prefix[end : slash + 1], list_address(bucket, prefix[: slash + 1])))
        end = slash + 1
    return found
