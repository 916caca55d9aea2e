"""What the script of the pages adds: they are live, keep what their viewer has done, and have keys."""

from __future__ import annotations

import re
from typing import Final

import pytest
from playwright.sync_api import expect

from peerd.testing import eventually
from tests.pages.live.conftest import Open
from tests.pages.live.studio import WITHIN, Studio
from tests.pages.live.test_users import log_in
from tests.pages.live.visible import assert_seen

pytestmark = pytest.mark.slow
SOON: Final = 20_000
MEASURE: Final = """() => {
  window.readings = 0;
  const original = window.fetch;
  window.fetch = (...given) => { window.readings += 1; return original(...given); };
  window.shifts = [];
  new PerformanceObserver(list => {
    for (const entry of list.getEntries()) {
      window.shifts.push([entry.value, entry.sources.map(source => source.node?.outerHTML?.slice(0, 200))]);
    }
  }).observe({ type: "layout-shift", buffered: false });
}"""


def test_the_page_of_a_task_follows_its_progress_and_its_log(open_page: Open, studio: Studio) -> None:
    job = studio.client.enqueue("video", name="transcode", body={"source": "long.mov", "seconds": 600})
    page = open_page(f"/tasks/{job.id}")
    expect(page.locator("#progress")).to_contain_text("segment", timeout=SOON)
    first = page.locator("#progress").inner_text()
    expect(page.locator("#progress")).not_to_have_text(first, timeout=SOON)
    log = page.locator("#log")
    expect(log).to_contain_text("segment is encoded", timeout=SOON)
    lines = log.locator("> div").count()
    eventually(lambda: log.locator("> div").count() > lines, timeout=WITHIN)
    stack = open_page(f"/tasks/{job.id}/stack")
    for text in ("await asyncio.sleep(seconds / steps)", "% cpu, "):  # a source line, and what its process uses
        assert_seen(stack, text)
    studio.client.tasks.cancel(job.id, "enough")
    expect(page.locator("#error")).to_contain_text("enough", timeout=SOON)


def test_log_lines_that_are_followed_are_no_markup(open_page: Open, studio: Studio) -> None:
    text = "<img src=x onerror=hit()> \u202e \x1b[31m \x00 end"
    job = studio.client.enqueue("video", name="mutter", body={"text": text})
    page = open_page(f"/tasks/{job.id}")
    lines = page.locator("#log > div")
    eventually(lambda: lines.count() > 3, timeout=WITHIN)
    for line in lines.all_inner_texts():
        assert "<img src=x onerror=hit()> \\u202e \\x1b[31m \\x00 end" in line
    studio.client.tasks.cancel(job.id, "enough")


def test_nothing_moves_while_a_page_is_live(open_page: Open, studio: Studio) -> None:
    for path in ("/", "/tasks", "/tasks/{running}", "/nodes/show?name=studio-1", "/queues", "/nodes"):
        page = open_page(path.replace("{running}", str(studio.task_of("running"))))
        if "nodes/show" in path:
            expect(page.locator("#state table")).to_be_visible(timeout=SOON)  # it is loaded after the page
        page.evaluate(MEASURE)
        for number in range(2):
            studio.client.enqueue("video", name="probe", body={"source": f"shift-{number}.mov"})
            page.wait_for_function(f"() => window.readings > {number}", timeout=SOON)
        page.wait_for_timeout(500)  # in which nothing may move after the last reading either
        shifts = page.evaluate("() => window.shifts")
        if path == "/tasks":  # new rows push older ones down
            shifts = [shift for shift in shifts if "task-" not in str(shift[1])]
        assert sum(value for value, _ in shifts) < 0.01, (path, shifts)
        open_page.close()


def test_what_was_checked_opened_and_focused_stays(open_page: Open, studio: Studio) -> None:
    page = open_page("/tasks?queue=archive")
    box = page.locator("input[data-row]").nth(2)
    box.check()
    value = box.input_value()
    page.locator("#columns > summary").click()
    page.keyboard.press("j")
    current = page.locator("tr.current")
    expect(current).to_have_count(1)
    job = studio.client.enqueue("archive", name="store", body={})
    expect(page.locator(f"#task-{job.id}")).to_be_visible(timeout=SOON)
    expect(page.locator(f"input[data-row][value='{value}']")).to_be_checked()
    expect(page.locator("[data-selected]")).to_have_text("1")
    expect(page.locator("#columns")).to_have_attribute("open", "")
    expect(current).to_have_count(1)


def test_a_page_that_loses_its_server_says_so_and_comes_back(open_page: Open, studio: Studio) -> None:
    page = open_page("/queues", may_fail=True)
    expect(page.locator("#live-state")).to_have_text("live", timeout=SOON)
    page.context.set_offline(True)
    expect(page.locator("#lost")).to_contain_text("does not answer", timeout=2 * SOON)
    assert_seen(page, "The server does not answer. What you see is old. Since ")
    page.context.set_offline(False)
    expect(page.locator("#lost")).to_be_hidden(timeout=2 * SOON)
    studio.client.enqueue(f"back-{page.evaluate('() => Date.now()')}", name="x", start_in="5h")
    expect(page.locator("#queues")).to_contain_text("back-", timeout=SOON)


def test_keys(open_page: Open, studio: Studio) -> None:
    page = open_page("/tasks?queue=archive&status=pending")
    rows = page.locator("table.rows tbody tr[id]")
    for key, current in (("j", 0), ("j", 1), ("k", 0)):
        page.keyboard.press(key)
        expect(rows.nth(current)).to_have_class(re.compile("current"))
    page.keyboard.press("x")
    expect(rows.nth(0).locator("input[data-row]")).to_be_checked()
    page.keyboard.press("?")
    expect(page.locator("dialog")).to_contain_text("next or previous row")
    page.keyboard.press("Escape")
    expect(page.locator("dialog")).to_be_hidden()
    page.keyboard.press("/")
    expect(page.locator("#queue")).to_be_focused()
    page.keyboard.type("jx?")  # in a field these are letters
    expect(page.locator("#queue")).to_have_value("jx?")
    page.locator("h1").click()
    page.keyboard.press("j")
    task = rows.nth(1).locator("a").first.inner_text()
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(f"/tasks/{task}$"))
    page.keyboard.type("gn")
    expect(page.locator("h1")).to_have_text("Nodes")


def test_a_viewer_has_its_time_zone_and_its_theme_and_exports_tasks(
    open_page: Open, studio: Studio, admin: str
) -> None:
    page = open_page(f"/tasks/{studio.task_of('done')}", timezone_id="Asia/Kolkata")
    log_in(page, admin)
    shown = page.locator("#facts time").first
    expect(shown).to_have_attribute("title", re.compile(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC \| .+ Asia/"))
    page.locator("#theme").select_option("dark")
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    page.goto("/tasks?queue=archive&status=pending")
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    expect(page.locator("html")).to_have_css("background-color", "rgb(18, 22, 28)")
    for label, name in (("CSV", "tasks.csv"), ("JSON lines", "tasks.jsonl")):
        with page.expect_download() as download:
            page.get_by_role("link", name=label).click()
        assert download.value.suggested_filename == name
        assert len(download.value.path().read_text().splitlines()) >= 30
