"""What an operator asks, answered by clicks alone, and by four of them at the most, with pictures of the answers.

``make screenshots`` writes the pictures to docs/images/dashboard.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable
from datetime import timedelta
from itertools import product
from pathlib import Path
from typing import Final, Literal

import pytest
import sqlalchemy as sa
from PIL import Image
from playwright.sync_api import Browser, Locator, Page, expect

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
from peerd.testing import eventually
from tests.pages.live.conftest import PHONE, Open
from tests.pages.live.studio import FAILED, WITHIN, Studio
from tests.pages.live.test_users import log_in
from tests.store.file_steps import Catalogue
from tests.support.quick_passwords import quick_hash
from tests.web.access_world import PASSWORD, serving

pytestmark = pytest.mark.slow
HEIGHT: Final = 900
MOST_CLICKS: Final = 4
SOON: Final = 20_000


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
                expect(page.locator(part).first).to_be_visible(timeout=SOON)
                expect(page.locator("#live-state")).to_have_text("live", timeout=SOON)
                assert page.evaluate("() => document.documentElement.scrollWidth - innerWidth") <= 0
                take(page, tmp_path if look else folder, name + look, height=height if width > PHONE else HEIGHT)
                open_page.close()


class Clicks:
    """Counts the clicks on a page, from the overview on; what is typed or chosen is no click."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.count = 0

    def click(self, target: Locator | str) -> None:
        """Click an element, or a link or a button by its text."""
        self.count += 1
        assert self.count <= MOST_CLICKS
        if isinstance(target, str):
            scope = self.page.locator("main, dialog[open], nav")
            link, button = (scope.get_by_role(role, name=target, exact=True) for role in ("link", "button"))
            target = link.or_(button)
        target.first.click()

    def find(self, text: object) -> None:
        """Type into the field at the top, and press Enter."""
        self.page.locator("#find").fill(str(text))
        self.page.keyboard.press("Enter")


@pytest.fixture
def clicks(open_page: Open, studio: Studio, past: None) -> Clicks:
    studio.restore()
    return Clicks(open_page("/?span=1h&by=queue"))


def test_what_goes_on(clicks: Clicks, folder: Path) -> None:
    page = clicks.page
    expect(page.locator("#live-state")).to_have_text("live", timeout=SOON)
    take(page, folder, "overview", height=1000)
    page.set_viewport_size({"width": PHONE, "height": HEIGHT})
    page.emulate_media(color_scheme="dark")
    take(page, folder, "overview-phone")


def test_why_is_a_queue_behind(clicks: Clicks, folder: Path) -> None:
    clicks.page.goto("/queues/show?name=archive")
    expect(clicks.page.locator("#why")).to_contain_text("No worker process has ever served this queue.")
    take(clicks.page, folder, "queue", height=520)


def test_retry_all_that_failed_by_a_time_out_since_an_hour_of_the_clock(
    clicks: Clicks, studio: Studio, folder: Path
) -> None:
    page, since = clicks.page, studio.client.now() - timedelta(hours=1)
    clicks.click("Tasks")
    page.locator("#status").select_option("dead")
    page.locator("#search").fill("timeout")
    page.locator("#where-column").select_option("finished_at")
    page.locator("#where-operator").select_option(">=")
    page.locator("#where-value").fill(since.strftime("%Y-%m-%dT%H:%MZ"))
    clicks.click("Filter")
    expect(page).to_have_url(re.compile("status=dead"))
    take(page, folder, "tasks", height=700)
    clicks.click("With all that the filter finds…")
    expect(page.locator(".warning")).to_contain_text(f"Retry: {FAILED} tasks")
    take(page, folder, "bulk", height=520)
    clicks.click("Retry")
    expect(page.locator("#progress")).to_contain_text(re.compile(rf"Done\s*{FAILED}"), timeout=SOON)
    eventually(lambda: len(studio.client.tasks.list(status="dead", limit=50)) >= FAILED, timeout=WITHIN)  # again


def test_which_node_runs_a_task_and_where_in_its_code(clicks: Clicks, studio: Studio, folder: Path) -> None:
    clicks.find(studio.task_of("running"))
    expect(clicks.page.locator("#facts")).to_contain_text(re.compile(r"Running on\s*studio-\d"))
    expect(clicks.page.locator("#log")).to_contain_text("segment is encoded", timeout=SOON)
    take(clicks.page, folder, "task")
    clicks.click("Show the stack")
    expect(clicks.page.locator("pre").first).to_contain_text("studio_jobs.py")  # no picture: paths of this machine


def test_which_tasks_wait_for_the_same_key(clicks: Clicks, studio: Studio) -> None:
    first = studio.client.tasks.list(queue="archive", where=["limit_key=disk-1"], limit=1)[0]
    clicks.find(first.id)
    clicks.click(clicks.page.locator("#facts").get_by_role("link", name=str(first.limit_key)))
    expect(clicks.page.locator("#tasks tbody tr")).to_have_count(10)


def test_what_does_a_node_run_and_how_is_it_emptied(clicks: Clicks, studio: Studio, folder: Path) -> None:
    page, client = clicks.page, studio.client
    film = client.enqueue("video", name="transcode", body={"source": "only-here.mov"}, node="studio-2")
    eventually(lambda: client.tasks.get(film.id).status == "working", timeout=WITHIN)
    clicks.click(page.locator("#nodes").get_by_role("link", name="studio-2"))
    expect(page.locator("#running tbody tr").first).to_contain_text("transcode")
    clicks.click("Drain")
    clicks.click(page.locator("dialog button.primary"))
    expect(page.locator("#facts")).to_contain_text(re.compile("Draining|Drained"))
    expect(page.locator("#state table")).to_be_visible(timeout=SOON)
    take(page, folder, "node", height=940)
    for task in client.tasks.list(where=[f"worker_node_id={client.nodes.get('studio-2').id}"], limit=50):
        if task.status == "working":
            client.tasks.cancel(task.id, "moved away")
    expect(page.locator("#facts")).to_contain_text("Drained", timeout=SOON)
    studio.restore()


def test_pause_a_queue_for_an_hour(clicks: Clicks, folder: Path) -> None:
    clicks.click(clicks.page.locator("#queues").get_by_role("link", name="video"))
    clicks.click("Pause")
    expect(clicks.page.locator("dialog")).to_be_visible()
    clicks.page.locator("dialog [name=duration]").fill("1h")
    take(clicks.page, folder, "confirm", height=520)


def test_why_did_a_process_die(clicks: Clicks, studio: Studio, folder: Path) -> None:
    studio.second.kill("video-2")
    clicks.click("Processes")
    clicks.click("With those that have ended")
    expect(clicks.page.locator("#processes")).to_contain_text("SIGKILL", timeout=2 * SOON)
    take(clicks.page, folder, "processes", height=620)


def test_who_did_it(open_page: Open, studio: Studio, folder: Path, admin: str) -> None:
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
