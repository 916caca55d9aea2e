"""The pictures of the documentation. ``make screenshots`` writes them to docs/images/dashboard."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Literal

import pytest
from PIL import Image
from playwright.sync_api import Browser, Page, expect

from peerd import Role
from peerd.store.access.users import add_user
from tests.pages.live.archive import Archive
from tests.pages.live.conftest import PHONE, Open
from tests.pages.live.studio import Studio
from tests.pages.live.test_users import log_in
from tests.web.conftest import password_hash

pytestmark = pytest.mark.slow
HEIGHT: Final = 900


@pytest.fixture(scope="module")
def past(studio: Studio) -> None:
    """An hour of figures."""
    studio.restore()
    studio.write_past()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where pictures go: the documentation, if that is asked for."""
    asked = os.environ.get("PEERD_SCREENSHOTS")
    folder = tmp_path if asked is None else Path(asked)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def take(page: Page, folder: Path, name: str, *, height: int = HEIGHT) -> None:
    """A picture of a page; it has content."""
    page.mouse.move(0, 0)
    path = folder / f"{name}.png"
    width = page.viewport_size["width"] if page.viewport_size else PHONE
    page.set_viewport_size({"width": width, "height": height})
    page.screenshot(path=path, animations="disabled")
    with Image.open(path) as image:
        assert len(image.getcolors(1 << 24) or []) > 50
        image.convert("P", palette=Image.Palette.ADAPTIVE, colors=128).save(path, optimize=True)


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Archive]:
    archive = Archive(tmp_path_factory.mktemp("archive"))
    try:
        yield archive.up()
    finally:
        archive.close()


HIDE_FOLDERS: Final = """folder => {
    const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (texts.nextNode()) texts.currentNode.data = texts.currentNode.data.replaceAll(folder, "/srv");
}"""
"""In pictures, the folders of this machine are called as those of a server."""
LOOKS: Final[tuple[tuple[str, int, Literal["light", "dark"]], ...]] = (
    ("", 1280, "light"),
    ("-dark", 1280, "dark"),
    ("-phone", PHONE, "dark"),
)
STORAGE_PICTURES: Final = {
    "storage": ("/storage", "#risks", 830),
    "disks": ("/disks", "#disks", 440),
    "files": ("/files/list?bucket=films&prefix=2026/lighthouse/", "#files", 440),
}


@pytest.mark.parametrize("name", STORAGE_PICTURES)
def test_how_files_are_kept_after_a_node_has_burnt_with_its_disk(
    browser: Browser, archive: Archive, folder: Path, tmp_path: Path, name: str
) -> None:
    path, part, height = STORAGE_PICTURES[name]
    for look, width, theme in LOOKS:
        with browser.new_context(
            base_url=archive.address, viewport={"width": width, "height": HEIGHT}, color_scheme=theme
        ) as context:
            page = context.new_page()
            page.goto(path)
            expect(page.locator(part).first).to_be_visible(timeout=20_000)
            expect(page.locator("#live-state")).to_have_text("live", timeout=20_000)
            assert page.evaluate("() => document.documentElement.scrollWidth - innerWidth") <= 0
            page.evaluate(HIDE_FOLDERS, str(archive.disks))
            take(page, tmp_path if look else folder, name + look, height=height if width > PHONE else HEIGHT)
            page.goto("about:blank")


@pytest.mark.usefixtures("past")
class TestPictures:
    """One for each question of an operator."""

    def test_overview(self, open_page: Open, folder: Path) -> None:
        page = open_page("/?span=1h&by=queue")
        expect(page.locator("#live-state")).to_have_text("live", timeout=20_000)
        take(page, folder, "overview", height=1000)
        page.set_viewport_size({"width": PHONE, "height": HEIGHT})
        page.emulate_media(color_scheme="dark")
        take(page, folder, "overview-phone")

    def test_a_queue_that_grows(self, open_page: Open, folder: Path) -> None:
        page = open_page("/queues/show?name=archive")
        expect(page.locator("#why")).to_contain_text("Why tasks wait")
        take(page, folder, "queue", height=520)

    def test_tasks_by_a_filter_and_a_bulk_action(self, open_page: Open, folder: Path) -> None:
        page = open_page("/tasks")
        page.locator("#status").select_option("dead")
        page.locator("#search").fill("timeout")
        page.locator("#since").select_option("1d")
        page.get_by_role("button", name="Filter", exact=True).click()
        expect(page).to_have_url(re.compile("status=dead"))
        take(page, folder, "tasks", height=700)
        page.get_by_role("link", name="With all that the filter finds").click()
        take(page, folder, "bulk", height=520)

    def test_a_running_task(self, open_page: Open, studio: Studio, folder: Path) -> None:
        page = open_page(f"/tasks/{studio.task_of('running')}")
        expect(page.locator("#log")).to_contain_text("segment is encoded", timeout=20_000)
        take(page, folder, "task")
        page.get_by_role("link", name="Show the stack").click()
        expect(page.locator("pre").first).to_contain_text("transcode")  # no picture: it has paths of this machine

    def test_a_node_that_is_drained(self, open_page: Open, studio: Studio, folder: Path) -> None:
        studio.client.nodes.drain("studio-1")
        page = open_page("/nodes/show?name=studio-1")
        expect(page.locator("#state table")).to_be_visible(timeout=20_000)
        take(page, folder, "node", height=940)
        studio.client.nodes.undrain("studio-1")

    def test_an_action_is_confirmed(self, open_page: Open, folder: Path) -> None:
        page = open_page("/queues/show?name=video")
        page.get_by_role("link", name="Pause").click()
        expect(page.locator("dialog")).to_be_visible()
        page.locator("dialog [name=duration]").fill("1h")
        take(page, folder, "confirm", height=520)

    def test_processes_that_have_ended(self, open_page: Open, studio: Studio, folder: Path) -> None:
        studio.second.kill("video-1")
        page = open_page("/processes?ended=1")
        expect(page.locator("#processes")).to_contain_text("SIGKILL", timeout=40_000)
        take(page, folder, "processes", height=620)

    def test_who_did_it(self, open_page: Open, studio: Studio, folder: Path, admin: str) -> None:
        studio.client.database.run(add_user, "ben", Role.OPERATOR, password_hash())
        page = open_page("/queues/pause?name=mail", may_fail=True)
        log_in(page, "ben")
        page.locator("[name=duration]").fill("10m")
        page.get_by_role("button", name="Pause").click()
        page.get_by_role("button", name="Log out").click()
        log_in(page, admin)
        page.goto("/audit?target=queue&key=mail")
        page.locator("details").first.locator("summary").click()
        take(page, folder, "audit", height=620)
        studio.client.queues.resume("mail")
