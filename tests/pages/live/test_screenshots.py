"""What an operator asks, answered by a few clicks, with pictures of the answers.

``make screenshots`` writes the pictures to docs/images/dashboard.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Final

import pytest
import sqlalchemy as sa
from PIL import Image
from playwright.sync_api import Browser, Page, expect

from peerd import Client, Role
from peerd.domain.files import CopyState
from peerd.store.files.buckets import get_bucket
from peerd.store.files.checks import postpone_check
from peerd.store.files.disks import count_copies, write_counts
from peerd.store.schema.tables import disks as disk_table
from peerd.store.schema.tables import file_copies
from peerd.store.schema.types import seconds_from_now
from peerd.store.users import add_user
from peerd.testing import eventually
from tests.pages.live.conftest import Open
from tests.pages.live.studio import FAILED, WITHIN, Studio
from tests.pages.live.test_users import log_in
from tests.store.file_steps import Catalogue
from tests.support.quick_passwords import quick_hash
from tests.support.served_api import everyone
from tests.web.access_world import PASSWORD, serving

pytestmark = pytest.mark.slow
SOON: Final = 20_000


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where pictures go: the documentation, if that is asked for."""
    return Path(os.environ.get("PEERD_SCREENSHOTS", tmp_path))


def take(page: Page, folder: Path, name: str, *, height: int = 900, width: int = 1440) -> None:
    """A picture of a page; it has content."""
    page.mouse.move(0, 0)
    path = folder / f"{name}.png"
    page.set_viewport_size({"width": width, "height": height})
    page.screenshot(path=path, animations="disabled")
    with Image.open(path) as image:
        assert len(image.getcolors(1 << 24) or []) > 50
        image.convert("P", palette=Image.Palette.ADAPTIVE, colors=128).save(path, optimize=True)


def click(page: Page, name: str) -> None:
    """Click a link or a button by its text."""
    scope = page.locator("main, dialog[open], nav")
    scope.get_by_role("link", name=name, exact=True).or_(
        scope.get_by_role("button", name=name, exact=True)
    ).first.click()


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
    disks = [catalogue.disk(f"archive-{number}", f"room {number}") for number in (1, 2, 3)]
    for disk, free in zip(disks, (1.1, 1.3, 1.9), strict=True):
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


def test_how_files_are_kept_after_a_node_has_burnt(
    browser: Browser, migrated_file: Path, folder: Path, tmp_path: Path
) -> None:
    with Client(f"sqlite:///{shutil.copy(migrated_file, tmp_path / 'archive.sqlite')}") as client:
        report = fill_archive(client)
        with serving(client, authenticate=everyone) as address:
            open_page = Open(browser, address)
            for name, path, part, height in (
                ("storage", "/storage", "#risks", 830),
                ("disks", "/disks", "#disks", 440),
                ("files", "/files/list?bucket=films&prefix=2026/lighthouse/", "#files", 440),
            ):
                report()
                page = open_page(path)
                expect(page.locator(part).first).to_be_visible(timeout=SOON)
                expect(page.locator("#live-state")).to_have_text("live", timeout=SOON)
                take(page, folder, name, height=height, width=1280)
                open_page.close()


@pytest.fixture(scope="module")
def past(studio: Studio) -> None:
    """An hour of figures."""
    studio.restore()
    studio.write_past()


@pytest.fixture
def page(open_page: Open, past: None) -> Page:
    return open_page("/?span=1h&by=queue")


def test_what_goes_on(page: Page, folder: Path) -> None:
    expect(page.locator("#live-state")).to_have_text("live", timeout=SOON)
    take(page, folder, "overview", height=1000)


def test_why_is_a_queue_behind(page: Page, folder: Path) -> None:
    page.goto("/queues/show?name=archive")
    expect(page.locator("#why")).to_contain_text("which no worker process has ever served")
    take(page, folder, "queue", height=520)


def test_retry_all_that_failed_by_a_time_out_since_an_hour(page: Page, studio: Studio, folder: Path) -> None:
    since = studio.client.now() - timedelta(hours=1)
    page.get_by_role("navigation").get_by_role("link", name="Tasks").click()
    page.locator("#tabs").get_by_role("link", name="dead").click()
    page.locator("#search").fill("timeout")
    page.locator("#where-column").select_option("finished_at")
    page.locator("#where-operator").select_option(">=")
    page.locator("#where-value").fill(since.strftime("%Y-%m-%dT%H:%MZ"))
    click(page, "Filter")
    expect(page).to_have_url(re.compile("status=dead"))
    click(page, "With all that the filter finds…")
    expect(page.locator(".warning")).to_contain_text(f"Retry: {FAILED} tasks")
    take(page, folder, "bulk", height=520)
    click(page, "Retry")
    expect(page.locator("#progress")).to_contain_text(re.compile(rf"Done\s*{FAILED}"), timeout=SOON)
    eventually(lambda: len(studio.client.tasks.list(status="dead", limit=50)) >= FAILED, timeout=WITHIN)  # again


def test_what_does_a_node_run_and_how_is_it_emptied(page: Page, studio: Studio, folder: Path) -> None:
    client = studio.client
    film = client.enqueue("video", name="transcode", body={"source": "only-here.mov"}, node="studio-2")
    eventually(lambda: client.tasks.get(film.id).status == "working", timeout=WITHIN)
    page.locator("#nodes").get_by_role("link", name="studio-2").click()
    expect(page.locator("#running tbody tr").first).to_contain_text("transcode")
    click(page, "Drain")
    page.locator("dialog button.primary").click()
    expect(page.locator("#facts")).to_contain_text(re.compile("Draining|Drained"))
    expect(page.locator("#state table")).to_be_visible(timeout=SOON)
    take(page, folder, "node", height=940)
    for task in client.tasks.list(where=[f"worker_node_id={client.nodes.get('studio-2').id}"], status="working"):
        client.tasks.cancel(task.id, "moved away")
    expect(page.locator("#facts")).to_contain_text("Drained", timeout=SOON)
    studio.restore()


def test_why_did_a_process_die(page: Page, studio: Studio, folder: Path) -> None:
    studio.second.kill("video-2")
    click(page, "Processes")
    click(page, "With those that have ended")
    expect(page.locator("#processes")).to_contain_text("SIGKILL", timeout=2 * SOON)
    take(page, folder, "processes", height=620)


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
