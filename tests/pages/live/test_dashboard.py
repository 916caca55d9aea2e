"""The dashboard in a real browser, without nodes: it acts, says what it has done, and shows what others do."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Final, Literal
from urllib.parse import quote

import pytest
import sqlalchemy as sa
from playwright.sync_api import Browser, expect

from peerd import Client
from peerd.store.schema.tables import attempts, tasks
from peerd.testing import eventually
from tests.pages.addresses import NODE
from tests.pages.live.conftest import PHONE, Open
from tests.pages.live.visible import assert_seen, faults_of_layout

SOON = 20_000
MESSAGES: Final = (
    ("/tasks?node=delta", (), "there is no node 'delta'"),
    ("/tasks?where=nonsense", (), "where: 'nonsense'"),
    ("/tasks?queue=no queue!", (), "No task meets this filter."),
    ("/tasks/1/snooze?duration=soon", ("#confirm button.primary",), "soon"),
    ("/tasks?queue=done", ("[data-row]", "button[value=delete]", "#confirm button.primary"), "Delete: 1 of 1 task."),
    ("/tasks?queue=video", ("[data-row]", "button[value=kick]", "#confirm button.primary"), "Not done: "),
    ("/tasks/1/bury", ("#confirm button.primary",), "Task 1 was buried."),
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


def test_a_page_with_a_filter_that_cannot_be_is_live(browser: Browser, address: str, client: Client) -> None:
    open_page = Open(browser, address)
    page = open_page("/tasks?node=delta", may_fail=True)
    expect(page.locator("#live-state")).to_have_text("live", timeout=SOON)
    with page.expect_response(lambda answer: "x-peerd-live" in answer.request.headers):
        client.enqueue("video", name="new")
    page.wait_for_function("() => !live.busy")
    assert_seen(page, "there is no node 'delta'")
    expect(page.get_by_text("The server does not answer")).to_be_hidden()
    open_page.close()


def test_each_status_has_its_columns_and_its_tab(browser: Browser, address: str, client: Client) -> None:
    [first, second] = (client.enqueue("films", name="cut", node=NODE, max_attempts=3) for _ in range(2))
    node_id = client.tasks.get(first.id).node_id
    began = datetime.now(UTC) - timedelta(minutes=5, seconds=20)
    running = {"status": "working", "worker_node_id": node_id, "progress": 0.5, "worker_started_at": began}
    last = {"status": "dead", "attempts": 3, "error": "no space left", "worker_node_id": node_id, "node_id": None}
    ended = datetime.now(UTC).replace(microsecond=0)
    attempt = {
        "task_id": second.id,
        "lease": 1,
        "number": 3,
        "outcome": "failure",
        "ended_at": ended.replace(microsecond=9),
    }
    client.database.run(sa.Connection.execute, sa.insert(attempts).values(attempt))
    for job, values in ((first, running), (second, last | {"finished_at": ended})):
        client.database.run(sa.Connection.execute, sa.update(tasks).where(tasks.c.id == job.id).values(values))
    open_page = Open(browser, address)
    for status, heads, row in (
        ("working", ["Queue", "Handler", "Node", "Since", "Progress", "Note", "Attempts"], (first, "1/3", "5 min ago")),
        ("dead", ["Error", "Queue", "Handler", "Attempts", "Node", "Ended"], (second, "3/3", "no space left")),
        ("pending", ["Queue", "Handler", "Priority", "Due", "Pinned to", "Enqueued", "Attempts"], None),
    ):
        page = open_page("/tasks?queue=films" if row else "/tasks", width=PHONE)
        page.locator("#tabs").get_by_role("link", name=status).click()
        expect(page).to_have_url(re.compile(f"status={status}"))
        assert page.locator("thead th").all_text_contents()[2:] == heads
        first_task = page.locator("tbody tr[id] a").first
        expect(first_task).to_be_in_viewport(timeout=SOON)  # the first screen of a phone has the first task
        assert faults_of_layout(page) == []
        if row:
            for text in row[1:]:
                assert_seen(page, text)
        open_page.close()
    page = open_page(f"/tasks/{second.id}")
    expect(page.locator("#timeline li").last).to_contain_text(
        "ended: dead"
    )  # by its last attempt, which is written later
    page.goto(f"/tasks/{first.id}")
    assert_seen(page, "attempt 1 claimed")
    assert_seen(page, "1/3")
    assert_seen(page, "1 dead")
    page.goto(f"/nodes/show?name={quote(NODE)}")
    page.get_by_role("link", name="Those pinned to it").click()
    expect(page.locator("tr[id]")).to_have_count(1)  # the other one has only run there
    fields = page.locator(".filters input:not([type=hidden]), .filters select, .filters .primary")
    assert len(set(fields.evaluate_all("all => all.map(one => one.offsetHeight)"))) == 1
    page.locator("#since").select_option("1d")
    page.locator("#since-column").select_option("created_at")
    page.locator("form .filters button.primary").click()
    expect(page.locator("#since")).to_have_value("1d")
    expect(page.locator("#since-column")).to_have_value("created_at")
    assert page.locator("#known-node option").evaluate_all("all => all.map(one => one.value)") == [NODE]
    page.evaluate("() => { document.querySelector('h1').style.cssText = 'width: 1rem; overflow-wrap: anywhere' }")
    assert [fault for fault in faults_of_layout(page) if "Tasks" in fault], "a word that is broken is found"
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
