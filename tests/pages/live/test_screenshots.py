"""The pictures of the documentation. ``make screenshots`` writes them to docs/images/dashboard."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Final, Literal

import pytest
import sqlalchemy as sa
from PIL import Image
from playwright.sync_api import Browser, Page, expect

from peerd import Client, Role
from peerd.config.settings import AccessSettings
from peerd.domain.files import CopyState
from peerd.store.access.users import add_user
from peerd.store.files.buckets import get_bucket
from peerd.store.files.checks import postpone_check
from peerd.store.files.disk_counts import count_copies, write_counts
from peerd.store.schema.sql_clock import seconds_from_now
from peerd.store.schema.tables import disks as disk_table
from peerd.store.schema.tables import file_copies
from tests.pages.live.conftest import PHONE, Open
from tests.pages.live.studio import Studio
from tests.pages.live.test_users import log_in
from tests.store.file_steps import Catalogue
from tests.support.quick_passwords import quick_hash
from tests.web.access_world import PASSWORD, serving

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


FILMS: Final = (
    ("films", "2026/lighthouse/scene-01.mov", 2_600_000_000),
    ("films", "2026/lighthouse/scene-02.mov", 3_900_000_000),
    ("films", "2026/lighthouse/scene-03.mov", 1_700_000_000),
    ("films", "2026/lighthouse/sound.wav", 900_000_000),
    ("films", "2026/harbour/take-1.mov", 2_200_000_000),
    ("films", "2026/readme.txt", 2_000),
    ("masters", "lighthouse.mxf", 46_000_000_000),
    ("masters", "harbour.mxf", 35_000_000_000),
)
"""Masters have three copies, so that they are at risk when one of three nodes has burnt."""


def fill_archive(client: Client) -> Callable[[], None]:
    """Files on the disks of three nodes, of which the third was lost; what is returned makes the others report."""
    catalogue = Catalogue(client.database)
    room = dict(zip((1, 2, 3), (1.1, 1.3, 1.9), strict=True))
    disks = [catalogue.disk(f"archive-{number}", f"room {number}") for number in room]
    for disk, free in zip(disks, room.values(), strict=True):
        catalogue.change(disk_table, disk_table.c.id == disk, size=2 * 10**12, free=int(free * 10**12))
    client.file_classes.set("masters", copies=3)
    client.buckets.create("films", quota="2TB")
    client.buckets.create("masters", class_name="masters")
    for name, key, size in FILMS:
        bucket = client.database.read(get_bucket, name)
        file = catalogue.put(bucket, key, disks[0], size, class_name=bucket.class_name)
        copy = file_copies.insert().values(file_id=file.id, disk_id=disks[1], state=CopyState.STORED, size=size)
        client.database.run(sa.Connection.execute, copy)
        health, blocked = ("whole", None) if name == "films" else ("at-risk", "no other node has a disk")
        client.database.run(postpone_check, file.id, 9e4, danger=2, health=health, blocked=blocked)
    catalogue.silence(disks[2], 2_000.0)
    client.disks.lost(disks[2])
    for disk in disks:
        client.database.run(write_counts, disk, client.database.read(count_copies, disk))
    is_there = disk_table.c.id.in_(disks[:2])
    return lambda: catalogue.change(disk_table, is_there, seen_at=seconds_from_now(-1.0))


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


def test_how_files_are_kept_after_a_node_has_burnt_with_its_disk(
    browser: Browser, migrated_file: Path, folder: Path, tmp_path: Path
) -> None:
    with Client(f"sqlite:///{shutil.copy(migrated_file, tmp_path / 'archive.sqlite')}") as client:
        report = fill_archive(client)
        with serving(client, AccessSettings()) as address:
            open_page = Open(browser, address)
            for (name, (path, part, height)), (look, width, theme) in product(STORAGE_PICTURES.items(), LOOKS):
                report()
                page = open_page(path, width=width, theme=theme)
                expect(page.locator(part).first).to_be_visible(timeout=20_000)
                expect(page.locator("#live-state")).to_have_text("live", timeout=20_000)
                assert page.evaluate("() => document.documentElement.scrollWidth - innerWidth") <= 0
                take(page, tmp_path if look else folder, name + look, height=height if width > PHONE else HEIGHT)
                open_page.close()


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
        studio.client.database.run(add_user, "ben", Role.OPERATOR, quick_hash(PASSWORD))
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
