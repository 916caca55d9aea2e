"""A studio with a dashboard, and a browser: Debian's Chromium, steered by Playwright."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pytest
import sqlalchemy as sa
from playwright.sync_api import Browser, ConsoleMessage, Page, sync_playwright

from peerd import Role
from peerd.store.schema.tables import sessions, users
from peerd.store.users import add_user
from tests.pages.live.studio import Studio
from tests.support.npm import install_packages
from tests.support.quick_passwords import quick_hash
from tests.web.access_world import PASSWORD, bearer

AXE = Path(__file__).parent / "axe"
CHROMIUM = ("chromium-headless-shell", "chromium")
DESKTOP, PHONE = 1440, 390
"""Widths in pixels."""


@pytest.fixture(scope="package")
def studio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Studio]:
    """Two nodes under load, with a dashboard."""
    studio = Studio(tmp_path_factory.mktemp("studio"))
    try:
        yield studio.up()
    finally:
        studio.close()


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    """Debian's Chromium without a window.

    Playwright keeps an event loop in this thread: it has to be over before tests of other packages run theirs.
    """
    program = next(filter(None, map(shutil.which, CHROMIUM)), None)
    if program is None:
        pytest.skip("Chromium is not installed (as root, `make test` installs it where apt is present)")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield browser
        browser.close()


class Open:
    """Opens pages, each in a browser context of its own; none may have an error or ask another server.

    Args:
        browser: the browser.
        address: the URL of the dashboard.
        headers: of each request.
    """

    def __init__(self, browser: Browser, address: str, headers: dict[str, str] | None = None) -> None:
        self._headers = headers
        self._browser = browser
        self._address = address
        self._opened: list[Page] = []
        self._problems: list[str] = []

    def __call__(
        self,
        path: str = "/",
        *,
        width: int = DESKTOP,
        theme: Literal["light", "dark"] = "light",
        javascript: bool = True,
        may_fail: bool = False,
        **options: Any,
    ) -> Page:
        context = self._browser.new_context(
            base_url=self._address,
            viewport={"width": width, "height": 900},
            color_scheme=theme,
            java_script_enabled=javascript,
            extra_http_headers=self._headers,
            **options,
        )
        page = context.new_page()
        page.set_default_timeout(20_000)
        self._opened.append(page)
        failures = ["Failed to load resource"] if may_fail else []  # requests of this page are made to fail
        page.on("console", lambda message: self._on_console(message, failures))
        page.on("pageerror", lambda error: self._problems.append(f"error: {error}"))
        page.on("request", self._on_request)
        page.goto(path)
        return page

    def close(self) -> None:
        """Close all pages; they must have had no problem."""
        while self._opened:
            page = self._opened.pop()
            page.goto("about:blank")  # its streams of events end before the context does
            page.context.close()
        assert self._problems == []

    def _on_console(self, message: ConsoleMessage, expected: list[str]) -> None:
        if message.type in {"error", "warning"} and not any(text in message.text for text in expected):
            self._problems.append(f"console: {message.text}")

    def _on_request(self, request: Any) -> None:
        if not request.url.startswith((self._address, "about:", "data:")):
            self._problems.append(f"request to {request.url}")


@pytest.fixture
def open_page(browser: Browser, studio: Studio, request: pytest.FixtureRequest) -> Iterator[Open]:
    """Opens pages with a token of all rights; where the test has an `admin`, without one."""
    headers = None if "admin" in request.fixturenames else bearer(studio.token)
    pages = Open(browser, studio.address, headers)
    yield pages
    pages.close()


@pytest.fixture
def admin(studio: Studio) -> Iterator[str]:
    """The name of a user; afterwards there are no users again."""
    studio.client.database.run(add_user, "ann", Role.ADMIN, quick_hash(PASSWORD))
    yield "ann"
    for table in (sessions, users):
        studio.client.database.run(sa.Connection.execute, sa.delete(table))


@pytest.fixture(scope="session")
def axe_script(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The program of axe-core, which finds what readers and keyboards cannot use."""
    folder = install_packages(AXE, tmp_path_factory.mktemp("axe"))
    return (folder / "node_modules/axe-core/axe.min.js").read_text()
