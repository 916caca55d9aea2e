"""What handlers do: which fail most, which have become slower, and what they have logged."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from starlette.responses import Response

from peerd.domain.lifecycle import Status
from peerd.domain.log_line import LOG_LEVELS
from peerd.operate.figures import ErrorGroup, slowest_first
from peerd.web.pages.addresses import UrlQuery
from peerd.web.pages.rendering import PageRequest, status_with, unless_invalid
from peerd.web.pages.routes.overview import SPANS

ERROR_SPANS: Final = {"1d": "Day", "1h": "Hour", "7d": "Week"}
EARLIER: Final = {"1d": "Yesterday", "1h": "An hour ago", "7d": "A week ago"}


async def show_errors(page: PageRequest) -> Response:
    """The failed attempts in groups of one handler and one kind of error."""
    span = page.choice("span", ERROR_SPANS)
    only = {name: value for name in ("queue", "name") if (value := page.query.get(name))}
    key = ("errors", span, tuple(only.items()))
    found = await page.read(key, lambda: page.client.statistics.errors(span, **only))
    return page.render(
        "errors.html",
        "Errors",
        found=found,
        only=only,
        tasks_of=partial(tasks_of, where=f"finished_at>-{span}"),
        span=span,
        spans=ERROR_SPANS,
    )


def tasks_of(group: ErrorGroup, **more: str) -> str:
    """The query of the tasks of a group that are dead."""
    of_group = UrlQuery().with_values(queue=group.queue, name=group.name, status=Status.DEAD, search=group.search)
    return of_group.with_mapping(more).text


async def show_handlers(page: PageRequest) -> Response:
    """Each handler beside its own past, the one that has slowed down most first."""
    span, against = page.choice("span", SPANS), page.choice("against", EARLIER)
    rows = await page.read(
        ("handlers", span, against), lambda: page.client.statistics.summary(span, by="handler", against=against)
    )
    return page.render(
        "handlers.html",
        "Handlers",
        rows=slowest_first(rows),
        span=span,
        spans=SPANS,
        against=against,
        earlier=EARLIER,
    )


# ---------------------------------------------------------------- log lines


LOG_FILTERS: Final = ("text", "since", "queue", "name", "level", "after")


async def show_logs(page: PageRequest) -> Response:
    """The newest lines with a text."""
    given = {name: page.query.get(name) for name in LOG_FILTERS}
    wanted: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    found, problem = None, None
    if given["text"] is not None:
        found, problem = await unless_invalid(lambda: page.client.tasks.search_logs(**wanted), None)
    return page.render(
        "logs.html",
        "Log lines",
        status_with(problem),
        found=found,
        given=given,
        levels=list(LOG_LEVELS),
        problem=problem,
    )
