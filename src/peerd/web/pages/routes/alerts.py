"""Alerts: which are on, and which were raised lately."""

from __future__ import annotations

from http import HTTPStatus
from typing import Final

from starlette.responses import Response

from peerd.domain.alert import ABOUT_DISKS, OF_STORAGE, AlertKind
from peerd.domain.errors import InvalidFilter
from peerd.store.alerts import AlertPage, AlertRecord
from peerd.web.pages.rendering import PageRequest
from peerd.web.pages.subjects import Subject

KINDS: Final = [kind.value for kind in AlertKind if kind not in {AlertKind.RECOVERED, AlertKind.TEST}]
SHOWN: Final = {"all": "All", "on": "On", "past": "Others"}


async def show_alerts(page: PageRequest) -> Response:
    """A page of alerts."""
    shown = page.query.get("shown", "all")
    shown = shown if shown in SHOWN else "all"
    kind, after = page.query.get("kind"), page.query.get("after")
    on = {"on": True, "past": False}.get(shown or "")
    problem, found = None, AlertPage(items=[], next=None)
    try:
        found = await page.read(
            ("alerts", on, kind, after),
            lambda: page.client.alerts.list(on=on, kinds=None if kind is None else [kind], after=after),
        )
    except InvalidFilter as error:
        problem = str(error)
    return page.render(
        "alerts.html",
        "Alerts",
        HTTPStatus.OK if problem is None else HTTPStatus.UNPROCESSABLE_ENTITY,
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
