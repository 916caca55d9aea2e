"""Pages from templates: what each of them has, and the headers of the answer."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Hashable, Sequence
from datetime import UTC, datetime
from functools import cache
from http import HTTPStatus
from importlib.resources import files
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from peerd.domain.access import Actor, ActorKind, Right
from peerd.operate.client import AioClient
from peerd.operate.figures import SeriesPoint
from peerd.web.pages import formats
from peerd.web.pages.actions import ActionRegistry
from peerd.web.pages.charts.series_history import Load, SeriesHistory
from peerd.web.pages.forms import form_token
from peerd.web.pages.headers import PAGE_HEADERS
from peerd.web.pages.notices import clear_notice, notice_of
from peerd.web.pages.read_cache import ReadCache, visibility_of
from peerd.web.pages.static_files import StaticFiles
from peerd.web.pages.subjects import Subject
from peerd.web.pages.themes import theme_of
from peerd.web.pages.url_query import UrlQuery

T = TypeVar("T")
FOLDER: Final = Path(str(files("peerd.web.pages"))) / "templates"
LIVE_HEADER: Final = "x-peerd-live"
"""Sent by the script of the pages when it reads a page again."""


class NavigationLink(msgspec.Struct, frozen=True):
    """An entry of the navigation."""

    label: str
    path: str
    right: Right = Right.VIEW
    needs_all_queues: bool = False
    """An actor that is restricted to queues sees nothing there."""
    needs_storage: bool = False
    """It is shown where there is a disk or a bucket."""

    def is_for(self, actor: Actor) -> bool:
        """Whether an actor may see its page."""
        return actor.may(self.right) and not (self.needs_all_queues and actor.queues is not None)


NAVIGATION: Final = {
    "": (NavigationLink("Overview", "/"), NavigationLink("Alerts", "/alerts")),
    "Work": (
        NavigationLink("Tasks", "/tasks"),
        NavigationLink("Errors", "/errors"),
        NavigationLink("Handlers", "/handlers"),
        NavigationLink("Log lines", "/logs"),
        NavigationLink("Bulk actions", "/bulk"),
        NavigationLink("Queues", "/queues"),
        NavigationLink("Limits", "/limits"),
        NavigationLink("Schedules", "/schedules", needs_all_queues=True),
    ),
    "Cluster": (NavigationLink("Nodes", "/nodes"), NavigationLink("Processes", "/processes")),
    "Storage": (
        NavigationLink("Storage", "/storage", needs_all_queues=True, needs_storage=True),
        NavigationLink("Files", "/files", needs_all_queues=True, needs_storage=True),
        NavigationLink("Disks", "/disks", needs_all_queues=True, needs_storage=True),
    ),
    "Access": (
        NavigationLink("Audit log", "/audit", Right.ADMIN),
        NavigationLink("Users", "/users", Right.ADMIN),
        NavigationLink("Tokens", "/tokens", Right.ADMIN),
    ),
}
"""By group; the first one has no name."""


@cache
def environment() -> Environment:
    """The templates; a name that is not given to one is an error."""
    made = Environment(
        loader=FileSystemLoader(FOLDER),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update(formats.FILTERS)
    made.tests["long"] = formats.is_long
    made.globals["Subject"] = Subject
    made.globals["static"] = StaticFiles.address
    return made


class PageRequest:
    """A request for a page: its viewer, what it asks for, and what pages read."""

    def __init__(
        self, request: Request, client: AioClient, cache: ReadCache, history: SeriesHistory, actions: ActionRegistry
    ) -> None:
        self.request = request
        self.client = client
        self.cache = cache
        self.history = history
        self.actions = actions
        self.has_storage = False
        """Whether the navigation leads to files and disks."""
        self.marks: dict[str, str] = {}
        """What the navigation says beside a link, by the path: how many tasks are dead, how many alerts are on."""
        self.query = UrlQuery.parse(request.url.query)

    @property
    def actor(self) -> Actor:
        """The viewer."""
        return self.client.actor

    @property
    def path(self) -> str:
        """The path within the app."""
        return self.request.scope["path"].removeprefix(self.request.scope.get("root_path", "")) or "/"

    @property
    def is_live(self) -> bool:
        """Whether the script of the page reads it again."""
        return LIVE_HEADER in self.request.headers

    async def read(self, key: Hashable, load: Callable[[], Awaitable[T]], fresh_for: float | None = None) -> T:
        """What an operation reads, shared with the viewers that see the same; see `ReadCache.read`."""
        return await self.cache.read((visibility_of(self.actor), key), load, fresh_for)

    async def read_series(self, key: Hashable, seconds: float, now: datetime, load: Load) -> Sequence[SeriesPoint]:
        """The series of a chart, as `read`; what was read of it before is not read again."""
        whose = (visibility_of(self.actor), key)
        return await self.read(("series", key), lambda: self.history.read(whose, seconds, now, load))

    def render(self, template: str, title: str, status: HTTPStatus = HTTPStatus.OK, /, **values: Any) -> Response:
        """The page of a template; unchanged since the script has read it last, it is not sent again."""
        text = environment().get_template(template).render(self._common(title) | values)
        etag = f'"{hashlib.blake2b(text.encode(), digest_size=16).hexdigest()}"'
        if self.is_live and self.request.headers.get("if-none-match") == etag:
            return Response(status_code=HTTPStatus.NOT_MODIFIED, headers={**PAGE_HEADERS, "etag": etag})
        response = HTMLResponse(text, status, headers={**PAGE_HEADERS, "etag": etag})
        if not self.is_live:
            clear_notice(self.request, response)
        return response

    def redirect(self, path: str) -> Response:
        """To another page of the app, after a form."""
        root = self.request.scope.get("root_path", "")
        return RedirectResponse(root + path, HTTPStatus.SEE_OTHER, headers=PAGE_HEADERS)

    def _common(self, title: str) -> dict[str, Any]:
        actor = self.actor
        return {
            "title": title,
            "root": self.request.scope.get("root_path", ""),
            "path": self.path,
            "query": self.query,
            "actor": actor,
            "may": actor.may,
            "has_session": actor.kind is ActorKind.USER,
            "navigation": {
                group: [one for one in links if one.is_for(actor) and (self.has_storage or not one.needs_storage)]
                for group, links in NAVIGATION.items()
            },
            "marks": self.marks,
            "csrf_token": form_token(self.request),
            "theme": theme_of(self.request),
            "notice": None if self.is_live else notice_of(self.request),
            "now": datetime.now(UTC).replace(microsecond=0),
            "actions_of": lambda subject, *verbs: self.actions.of(subject, actor, *verbs),
        }
