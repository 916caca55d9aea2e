"""What an operator asks, answered by clicks alone, and by four of them at the most."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest
from playwright.sync_api import Locator, Page, expect

from peerd.testing import eventually
from tests.pages.live.conftest import Open
from tests.pages.live.studio import FAILED, WITHIN, Studio

pytestmark = pytest.mark.slow
MOST = 4
SOON = 20_000


class Clicks:
    """Counts the clicks on a page, from the overview on; what is typed or chosen is no click."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.count = 0

    def click(self, target: Locator | str) -> None:
        """Click an element, or a link or a button by its text."""
        self.count += 1
        assert self.count <= MOST
        if isinstance(target, str):
            scope = self.page.locator("main, dialog[open], nav")
            target = scope.get_by_role("link", name=target, exact=True).or_(
                scope.get_by_role("button", name=target, exact=True)
            )
        target.first.click()


@pytest.fixture
def clicks(open_page: Open, studio: Studio) -> Clicks:
    studio.restore()
    return Clicks(open_page("/"))


def test_which_queue_is_behind_and_why(clicks: Clicks) -> None:
    clicks.click(clicks.page.locator("#queues tr", has_text="not served").get_by_role("link", name="archive"))
    expect(clicks.page.locator("#why")).to_contain_text("No worker process has ever served this queue.")


def test_retry_all_that_failed_by_a_time_out_since_an_hour_of_the_clock(clicks: Clicks, studio: Studio) -> None:
    page, since = clicks.page, studio.client.now() - timedelta(hours=1)
    clicks.click("Tasks")
    page.locator("#status").select_option("dead")
    page.locator("#search").fill("timeout")
    page.locator("#where-column").select_option("finished_at")
    page.locator("#where-operator").select_option(">=")
    page.locator("#where-value").fill(since.strftime("%Y-%m-%dT%H:%MZ"))
    clicks.click("Filter")
    clicks.click("With all that the filter finds…")
    expect(page.locator(".warning")).to_contain_text(f"Retry: {FAILED} tasks")
    clicks.click("Retry")
    expect(page.locator("#progress")).to_contain_text(re.compile(rf"Done\s*{FAILED}"), timeout=SOON)
    eventually(lambda: len(studio.client.tasks.list(status="dead", limit=50)) >= FAILED, timeout=WITHIN)  # again


def test_which_node_runs_a_task_and_where_in_its_code(clicks: Clicks, studio: Studio) -> None:
    task_id = studio.task_of("running")
    clicks.page.locator("#find").fill(str(task_id))
    clicks.page.keyboard.press("Enter")
    expect(clicks.page.locator("#facts")).to_contain_text(re.compile(r"Running on\s*studio-\d"))
    clicks.click("Show the stack")
    expect(clicks.page.locator("pre").first).to_contain_text("studio_jobs.py")


def test_which_tasks_wait_for_the_same_key(clicks: Clicks, studio: Studio) -> None:
    first = studio.client.tasks.list(queue="archive", where=["limit_key=disk-1"], limit=1)[0]
    clicks.page.locator("#find").fill(str(first.id))
    clicks.page.keyboard.press("Enter")
    clicks.click(clicks.page.locator("#facts").get_by_role("link", name=str(first.limit_key)))
    expect(clicks.page.locator("#tasks tbody tr")).to_have_count(10)


def test_what_does_a_node_run(clicks: Clicks, studio: Studio) -> None:
    film = studio.client.enqueue("video", name="transcode", body={"source": "only-here.mov"}, node="studio-2")
    eventually(lambda: studio.client.tasks.get(film.id).status == "working", timeout=WITHIN)
    clicks.click(clicks.page.locator("#nodes").get_by_role("link", name="studio-2"))
    expect(clicks.page.locator("#running tbody tr").first).to_contain_text("transcode")
    studio.client.tasks.cancel(film.id)


def test_empty_a_node(clicks: Clicks, studio: Studio) -> None:
    clicks.click(clicks.page.locator("#nodes").get_by_role("link", name="studio-2"))
    clicks.click("Drain")
    clicks.click(clicks.page.locator("dialog button.primary"))
    expect(clicks.page.locator("#facts")).to_contain_text(re.compile("Draining|Drained"))
    for task in studio.client.tasks.list(where=[f"worker_node_id={studio.client.nodes.get('studio-2').id}"], limit=50):
        if task.status == "working":
            studio.client.tasks.cancel(task.id, "moved away")
    expect(clicks.page.locator("#facts")).to_contain_text("Drained", timeout=SOON)
    studio.restore()


def test_why_did_a_process_die(clicks: Clicks, studio: Studio) -> None:
    studio.second.kill("video-2")
    clicks.click("Processes")
    clicks.click("With those that have ended")
    expect(clicks.page.locator("#processes")).to_contain_text("SIGKILL", timeout=2 * SOON)
