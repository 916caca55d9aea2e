"""Each page on running nodes: no error, nothing that is too wide, nothing that a screen reader cannot use."""

from __future__ import annotations

import itertools
from typing import Any, Final, Literal

import pytest
from playwright.sync_api import Page, expect

from tests.pages.live.conftest import DESKTOP, PHONE, Open
from tests.pages.live.studio import Studio

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
PAGES: Final = {
    "overview": "/?span=1h&by=queue",
    "tasks": "/tasks",
    "columns": "/tasks?column=status&column=progress&column=progress_note&column=unique_key&status=working",
    "none": "/tasks?queue=nowhere",
    "running task": "/tasks/{running}",
    "failed task": "/tasks/{failed}",
    "dead task": "/tasks/{dead}",
    "done task": "/tasks/{done}",
    "stack": "/tasks/{running}/stack",
    "enqueue": "/tasks/enqueue",
    "again": "/tasks/{done}/again",
    "change": "/tasks/{failed}/change",
    "cancel": "/tasks/{failed}/cancel",
    "bulk actions": "/bulk",
    "bulk action": "/bulk/new?status=dead",
    "queues": "/queues",
    "queue": "/queues/show?name=archive",
    "limits": "/limits",
    "limit": "/limits/set?queue=video",
    "nodes": "/nodes",
    "node": "/nodes/show?name=studio-1",
    "node's state": "/nodes/state?name=studio-2",
    "scale": "/nodes/scale?name=studio-2",
    "processes": "/processes?ended=1",
    "schedules": "/schedules",
    "schedule": "/schedules/show?name=weekly",
    "storage": "/storage",
    "buckets": "/files",
    "files": "/files/list?bucket=films&prefix=2026/",
    "file": "/files/show?name=films/2026/scene-01.mov",
    "delete a file": "/files/delete?name=films/2026/scene-01.mov",
    "disks": "/disks",
    "disk": "/disks/1",
    "alerts": "/alerts",
    "users": "/users",
    "tokens": "/tokens",
    "token": "/tokens/new",
    "audit": "/audit",
    "account": "/account",
}
WHOLE: Final = frozenset({"overview", "running task", "node"})
"""Pages that axe-core examines in all four looks; it takes seconds, and the others are made of the same parts."""
LOOKS: Final[tuple[tuple[int, Literal["light", "dark"]], ...]] = (
    (DESKTOP, "light"), (DESKTOP, "dark"), (PHONE, "light"), (PHONE, "dark")
)  # fmt: skip
RULES: Final = {"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"]}


def address_of(studio: Studio, name: str) -> str:
    """The path of a page, with ids of tasks as they are now."""
    path = PAGES[name]
    for status in ("running", "failed", "dead", "done"):
        if f"{{{status}}}" in path:
            path = path.replace(f"{{{status}}}", str(studio.task_of(status)))
    return path


def findings(page: Page, axe_script: str) -> list[str]:
    """What axe-core finds, in a line each."""
    if not page.evaluate("() => 'axe' in window"):
        page.evaluate(axe_script)  # the policy of the page forbids a script element
    result: dict[str, Any] = page.evaluate("rules => axe.run(document, rules)", RULES)
    return [
        f"{found['id']}: {node['html'][:200]} ({node['failureSummary'][:200]})"
        for found in result["violations"]
        for node in found["nodes"]
    ]


def excess(page: Page) -> int:
    """How many pixels a page is too wide."""
    found: int = page.evaluate("() => document.documentElement.scrollWidth - innerWidth")
    return max(found, 0)


def look(page: Page, width: int, theme: Literal["light", "dark"]) -> None:
    page.set_viewport_size({"width": width, "height": 900})
    page.emulate_media(color_scheme=theme)


def test_each_page_fits_and_can_be_used_in_both_themes_at_both_widths(
    open_page: Open, studio: Studio, axe_script: str
) -> None:
    found: list[str] = []
    page = open_page("/")
    for name in PAGES:
        page.goto(address_of(studio, name))
        for width, theme in LOOKS:
            look(page, width, theme)
            found += [f"{name}: {pixels} pixels too wide at {width}" for pixels in [excess(page)] if pixels]
            if name in WHOLE or (width, theme) in {LOOKS[0], LOOKS[-1]}:
                found += [f"{name} {width} {theme}: {one}" for one in findings(page, axe_script)]
    assert found == []


def test_pages_are_whole_without_javascript(open_page: Open, studio: Studio) -> None:
    page = open_page("/", javascript=False)
    found = {}
    for name in PAGES:
        answer = page.goto(address_of(studio, name))
        for width in (DESKTOP, PHONE):
            look(page, width, "light")
            shown = answer is not None and answer.status, page.locator("main h1").count(), excess(page)
            if shown != (200, 1, 0):
                found[name, width] = shown
    assert found == {}


def test_the_dialogs_of_files_and_disks_can_be_used_in_both_themes_at_both_widths(
    open_page: Open, studio: Studio, axe_script: str
) -> None:
    found: list[str] = []
    page = open_page("/")
    for name in ("file", "disk"):
        page.goto(address_of(studio, name))
        links = page.locator("main a[data-dialog]")
        assert links.count() > 0
        for number, (width, theme) in itertools.product(range(links.count()), (LOOKS[0], LOOKS[-1])):
            look(page, width, theme)
            links.nth(number).click()
            expect(page.locator("dialog[open]")).to_be_visible()
            found += [f"{name}: {pixels} pixels too wide at {width}" for pixels in [excess(page)] if pixels]
            found += [f"{name} {width} {theme} {one}" for one in findings(page, axe_script)]
            page.keyboard.press("Escape")
            expect(page.locator("dialog[open]")).to_have_count(0)
    assert found == []
