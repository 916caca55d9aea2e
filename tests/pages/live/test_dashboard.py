"""The dashboard in a real browser, without nodes: it acts, says what it has done, and shows what others do."""

from __future__ import annotations

from typing import Final, Literal
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser, expect

from peerd import Client
from peerd.testing import eventually
from tests.pages.addresses import NODE
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


def carry_out(client: Client, bulk_id: int) -> None:
    eventually(lambda: client.bulk.carry_out(bulk_id).has_ended)


def test_a_bulk_action_moves_the_tasks_of_its_filter(browser: Browser, address: str, client: Client) -> None:
    pinned = [client.enqueue("films", name="cut", node=NODE) for _ in range(2)]
    other = client.enqueue("films", name="cut")
    open_page = Open(browser, address)
    page = open_page(f"/tasks?queue=films&node={quote(NODE)}", may_fail=True)
    page.get_by_role("link", name="With all that the filter finds…").click()
    page.locator("#verb").select_option("move")
    page.get_by_role("button", name="Preview").click()
    assert_seen(page, "Move to a node: 2 tasks")
    expect(page.locator("#field-to_node")).to_have_value("")
    page.locator("button.primary").click()
    assert_seen(page, "Bulk action 2 has begun.")
    carry_out(client, 2)
    assert [client.tasks.get(job.id).node_id for job in pinned] == [None, None]

    page.goto("/tasks?queue=films&where=priority>=0")
    page.get_by_role("link", name="With all that the filter finds…").click()
    page.locator("#verb").select_option("requeue")
    page.get_by_role("button", name="Preview").click()
    for queue, told in (("no queue!", "'no queue!' is not"), ("attic", "Bulk action 3 has begun.")):
        assert_seen(page, "queue films")
        assert_seen(page, "Move to a queue: 3 tasks")
        page.locator("#field-to_queue").fill(queue)
        page.locator("button.primary").click()
        assert_seen(page, told)
    carry_out(client, 3)
    assert {client.tasks.get(job.id).queue for job in (*pinned, other)} == {"attic"}

    expect(page.locator("main a.button")).to_have_count(0, timeout=SOON)  # nothing is to be paused
    page.get_by_role("link", name="Its tasks").click()
    expect(page.locator("tr[id]")).to_have_count(3)
    page.goto(f"/tasks/{other.id}")
    assert_seen(page, "moved by everyone (bulk action 3)")
    page.get_by_role("link", name="Who changed it?").click()
    assert_seen(page, "bulk.create")
    open_page.close()
