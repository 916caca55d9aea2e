"""Each page on running nodes: no error, nothing that is too wide, nothing that a screen reader cannot use."""

from __future__ import annotations

import re
from typing import Any, Final, Literal

import pytest
from playwright.sync_api import Page, expect

from tests.pages.live.conftest import DESKTOP, PHONE, Open
from tests.pages.live.studio import Studio
from tests.pages.live.visible import faults_of_layout

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
PAGES: Final = """
    /?span=1h&by=queue /login /tasks /tasks?queue=nowhere /tasks?status=pending /tasks?status=failure /tasks?status=dead
    /tasks?status=working /tasks/{running} /tasks/{failed} /tasks/{dead} /tasks/{done}
    /tasks?column=status&column=progress&column=progress_note&column=unique_key&status=working
    /tasks/{running}/stack /tasks/enqueue /tasks/{done}/again /tasks/{failed}/change /tasks/{failed}/cancel
    /bulk /bulk/new?status=dead /queues /queues/show?name=archive /limits /limits/set?queue=video
    /nodes /nodes/show?name=studio-1 /nodes/state?name=studio-2 /nodes/scale?name=studio-2 /processes?ended=1
    /schedules /schedules/show?name=weekly /storage /files /files/list?bucket=films&prefix=2026/
    /files/show?name=films/2026/scene-01.mov /files/delete?name=films/2026/scene-01.mov /disks /disks/1
    /alerts /users /tokens /tokens/new /audit /account
"""
"""In braces, the status of a task."""
WHOLE: Final = frozenset({"/?span=1h&by=queue", "/tasks/{running}", "/nodes/show?name=studio-1"})
"""Pages that axe-core examines in all four looks; it takes seconds, and the others, each of which it examines in one
look, are made of the same parts."""
LOOKS: Final[tuple[tuple[int, Literal["light", "dark"]], ...]] = (
    (DESKTOP, "light"), (DESKTOP, "dark"), (PHONE, "light"), (PHONE, "dark")
)  # fmt: skip
RULES: Final = {"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"]}


def faults_of(page: Page, axe_script: str | None, width: int, theme: Literal["light", "dark"]) -> list[str]:
    """What is wrong with the layout of a page in a look, and what axe-core finds, in a line each."""
    page.set_viewport_size({"width": width, "height": 900})
    page.emulate_media(color_scheme=theme)
    found = faults_of_layout(page) if theme == "light" else []  # colours change no layout
    if axe_script is None:
        return found
    if not page.evaluate("() => 'axe' in window"):
        page.evaluate(axe_script)  # the policy of the page forbids a script element
    result: dict[str, Any] = page.evaluate("rules => axe.run(document, rules)", RULES)
    nodes = [(one["id"], node) for one in result["violations"] for node in one["nodes"]]
    return found + [f"{name}: {node['html'][:200]} ({node['failureSummary'][:200]})" for name, node in nodes]


def test_each_page_fits_and_can_be_used_in_all_looks(open_page: Open, studio: Studio, axe_script: str) -> None:
    found: list[tuple[object, ...]] = []
    page = open_page("/")
    for number, name in enumerate(PAGES.split()):
        page.goto(re.sub(r"{(\w+)}", lambda status: str(studio.task_of(status[1])), name))
        for place, (width, theme) in enumerate(LOOKS):
            is_examined = name in WHOLE or place == (0, 3)[number % 2]
            faults = faults_of(page, axe_script if is_examined else None, width, theme)
            found += [(name, width, theme, fault) for fault in faults]
    assert found == []


def test_the_dialogs_of_files_and_disks_can_be_used(open_page: Open, axe_script: str) -> None:
    found: list[tuple[object, ...]] = []
    page = open_page("/")
    for name, (width, theme) in (("/files/show?name=films/2026/scene-01.mov", LOOKS[0]), ("/disks/1", LOOKS[-1])):
        page.goto(name)
        links = page.locator("main a[data-dialog]").all()
        assert links
        for link in links:
            link.click()
            expect(page.locator("dialog[open]")).to_be_visible()
            found += [(name, fault) for fault in faults_of(page, axe_script, width, theme)]
            page.keyboard.press("Escape")
            expect(page.locator("dialog[open]")).to_have_count(0)
    assert found == []
