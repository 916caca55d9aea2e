"""Pages from templates: what each of them has, errors as pages, and the style sheet, the script and the icon.

These files are small, read once, and kept by browsers until they change.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Hashable, Sequence
from datetime import UTC, datetime
from functools import cache
from http import HTTPStatus
from importlib.resources import files
from pathlib import Path
from typing import Any, Final, TypeVar

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from peerd.domain.access import Actor, ActorKind
from peerd.domain.errors import DatabaseUnavailable, InvalidFilter, NodeNotFound, PeerdError
from peerd.domain.quoting import without_tokens
from peerd.operate.client import AioClient
from peerd.operate.figures import SeriesPoint
from peerd.web.access.authentication import AccessRefused
from peerd.web.pages import formats
from peerd.web.pages.actions import ActionRegistry
from peerd.web.pages.addresses import Subject, UrlQuery
from peerd.web.pages.forms import clear_notice, form_token, notice_of
from peerd.web.pages.headers import PAGE_HEADERS
from peerd.web.pages.navigation import NavigationFacts, links_for
from peerd.web.pages.read_cache import ReadCache, visibility_of
from peerd.web.pages.series_history import Load, SeriesHistory
from peerd.web.problems import MAX_DETAIL, status_of

T = TypeVar("T")
FOLDER: Final = Path(str(files("peerd.web.pages"))) / "templates"
LIVE_HEADER: Final = "x-peerd-live"
"""Sent by the script of the pages when it reads a page again."""


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
    made.globals["static"] = static_address
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
        self.facts = NavigationFacts()
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
    def name(self) -> str:
        """The name in the address of what the page is about; empty where none is."""
        return self.query.get("name") or ""

    def choice(self, name: str, known: dict[str, str]) -> str:
        """What the address has chosen of some values; by default the first."""
        given = self.query.get(name)
        return given if given in known else next(iter(known))

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
            "navigation": links_for(actor, self.facts),
            "marks": self.facts.marks,
            "csrf_token": form_token(self.request),
            "theme": theme_of(self.request),
            "notice": None if self.is_live else notice_of(self.request),
            "now": datetime.now(UTC).replace(microsecond=0),
            "actions_of": lambda subject, *verbs: self.actions.of(subject, actor, *verbs),
        }


async def unless_invalid(load: Callable[[], Awaitable[T]], otherwise: T) -> tuple[T, str | None]:
    """What is read; or another value, and why nothing can be read for what the address asks for."""
    try:
        return await load(), None
    except (InvalidFilter, NodeNotFound) as error:
        return otherwise, str(error)


def status_with(problem: str | None) -> HTTPStatus:
    """The status of a page that says what is wrong with its address or its form, if anything is."""
    return HTTPStatus.OK if problem is None else HTTPStatus.UNPROCESSABLE_ENTITY


# ---------------------------------------------------------------- light and dark: of the system, or as it was chosen


THEME_COOKIE: Final = "peerd_theme"
THEMES: Final = ("system", "light", "dark")
THEME_MAX_AGE: Final = 365 * 86_400
"""Seconds."""


def theme_of(request: Request) -> str:
    """The theme that was chosen; `system` where none was."""
    chosen = request.cookies.get(THEME_COOKIE, "")
    return chosen if chosen in THEMES else THEMES[0]


# ---------------------------------------------------------------- static files


MEDIA_TYPES: Final = {
    "peerd.css": "text/css; charset=utf-8",
    "peerd.js": "text/javascript; charset=utf-8",
    "icon.svg": "image/svg+xml",
}
FOR_EVER: Final = "public, max-age=31536000, immutable"
STATIC_PATH: Final = "/static"


def static_address(name: str) -> str:
    """The address of a file below the root of the app, with the file's digest: ``/static/peerd.css?v=…``."""
    return f"{STATIC_PATH}/{name}?v={_digest(name)}"


async def answer_static(request: Request) -> Response:
    """A file that pages need; anyone may read it. Only the address with its digest may be kept."""
    name, version = request.path_params["name"], request.query_params.get("v")
    if name not in MEDIA_TYPES:
        return Response("there is no such file", HTTPStatus.NOT_FOUND, media_type="text/plain")
    keep = FOR_EVER if version == _digest(name) else "no-cache"
    headers = {"cache-control": keep, "content-type": MEDIA_TYPES[name]}
    return Response(_content(name), headers=headers)


@cache
def _content(name: str) -> bytes:
    return (files("peerd.web.pages") / "static" / name).read_bytes()


@cache
def _digest(name: str) -> str:
    return hashlib.blake2b(_content(name), digest_size=8).hexdigest()


# ---------------------------------------------------------------- errors as pages


HOME: Final = (("Overview", "/"),)


def error_page(page: PageRequest, error: PeerdError | AccessRefused) -> Response:
    """The page of an error; one that has no status is raised again."""
    status = status_of(error) if isinstance(error, PeerdError) else error.status
    if status is None:
        raise error
    heading = "The database does not answer" if isinstance(error, DatabaseUnavailable) else None
    return plain_error_page(page, status, without_tokens(str(error))[:MAX_DETAIL], heading)


def plain_error_page(page: PageRequest, status: HTTPStatus, detail: str, heading: str | None = None) -> Response:
    """The page that says what is wrong, and where to go from here."""
    shown = heading or status.phrase.capitalize()
    return page.render("error.html", shown, status, heading=shown, detail=detail, ways=HOME)
