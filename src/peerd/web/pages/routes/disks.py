"""Disks: what each has, and what it is used for."""

from __future__ import annotations

from starlette.responses import Response

from peerd.domain.file_errors import DiskNotFound
from peerd.domain.files import DiskState
from peerd.storage.overview import DiskCondition, DiskFigures
from peerd.web.pages.rendering import PageRequest
from peerd.web.pages.routes.files import LIVE
from peerd.web.pages.subjects import Subject

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
    """One disk."""
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
