"""The dashboard in a real browser, without nodes: it acts, and shows what others do."""

from __future__ import annotations

from playwright.sync_api import Browser, expect

from peerd import Client
from tests.pages.live.conftest import Open

SOON = 20_000


def test_a_page_acts_and_shows_what_others_do(browser: Browser, address: str, client: Client) -> None:
    open_page = Open(browser, address)
    page = open_page("/tasks?queue=video")
    expect(page.locator("#live-state")).to_have_text("live", timeout=SOON)
    job = client.enqueue("video", name="new")
    row = page.locator(f"#task-{job.id}")
    expect(row).to_be_visible(timeout=SOON)
    row.locator("a").first.click()
    page.get_by_role("link", name="Cancel", exact=True).click()
    page.locator("dialog [name=reason]").fill("the film was withdrawn")
    page.locator("dialog button.primary").click()
    expect(page.locator(".notice").first).to_contain_text("was canceled")
    assert client.tasks.get(job.id).error == "the film was withdrawn"
    client.tasks.retry(job.id)
    expect(page.locator("#head")).to_contain_text("pending", timeout=SOON)
    open_page.close()
