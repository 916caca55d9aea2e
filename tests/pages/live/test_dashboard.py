"""The dashboard in a real browser, without nodes: it acts, says what it has done, and shows what others do."""

from __future__ import annotations

from typing import Final, Literal

import pytest
from playwright.sync_api import Browser, expect

from peerd import Client
from tests.pages.live.conftest import Open
from tests.pages.live.visible import assert_seen

SOON = 20_000
MESSAGES: Final = (
    ("/tasks?node=delta", (), "there is no node 'delta'"),
    ("/tasks?where=nonsense", (), "where: 'nonsense'"),
    ("/tasks/1/snooze?duration=soon", ("#confirm button.primary",), "soon"),
    ("/tasks?queue=done", ("[data-row]", "button[value=delete]", "#confirm button.primary"), "Delete: 1 of 1 task."),
    ("/tasks?queue=video", ("[data-row]", "button[value=kick]", "#confirm button.primary"), "Not done: "),
    ("/tasks/1/bury", ("#confirm button.primary",), "Task 1 was set aside."),
    ("/bulk/new?status=dead&verb=kick", (), "cannot kick a task that is dead"),
    ("/bulk/new?queue=archive", ("#content button.primary",), "has begun."),
    ("/audit?since=x", (), "since: "),
    ("/files/list?bucket=none", (), "none"),
    ("/nowhere", (), "There is no such page."),
)
"""An address, what is clicked there, and the message that is seen then. test_actions has those of each action."""


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
    assert_seen(page, f"Task {job.id} was canceled.")
    assert client.tasks.get(job.id).error == "the film was withdrawn"
    client.tasks.retry(job.id)
    expect(page.locator("#head")).to_contain_text("pending", timeout=SOON)
    open_page.close()


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_each_message_is_seen(browser: Browser, address: str, client: Client, theme: Literal["light", "dark"]) -> None:
    open_page = Open(browser, address)
    client.enqueue("done", name="x", start_in="5h")
    client.enqueue("archive", name="x", start_in="5h")
    for path, clicked, text in MESSAGES:
        page = open_page(path, theme=theme, may_fail=True)
        for target in clicked:
            page.locator(target).first.click()
        assert_seen(page, text)
        open_page.close()
