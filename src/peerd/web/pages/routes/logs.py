"""Search in the log lines of all tasks."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any, Final

from starlette.responses import Response

from peerd.domain.errors import InvalidFilter
from peerd.domain.log_line import LOG_LEVELS
from peerd.web.pages.rendering import PageRequest

FIELDS: Final = ("text", "since", "queue", "name", "level", "after")


async def show_logs(page: PageRequest) -> Response:
    """The newest lines with a text."""
    given = {name: page.query.get(name) for name in FIELDS}
    problem, found = None, None
    if given["text"] is not None:
        wanted: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
        try:
            found = await page.client.tasks.search_logs(**wanted)
        except InvalidFilter as error:
            problem = str(error)
    status = HTTPStatus.OK if problem is None else HTTPStatus.UNPROCESSABLE_ENTITY
    return page.render(
        "logs.html", "Log lines", status, found=found, given=given, levels=list(LOG_LEVELS), problem=problem
    )
