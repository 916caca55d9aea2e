"""Each action on running nodes, as a person does it: with the dialog of the script, and without JavaScript."""

from __future__ import annotations

import io
import uuid
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import httpx
import pytest
import sqlalchemy as sa
from playwright.sync_api import Locator, Page, expect

from peerd import BulkSnooze, Client, Task, TaskFilter
from peerd.domain.lifecycle import Status
from peerd.store import nodes as node_rows
from peerd.store.schema.tables import bulk_actions, nodes
from peerd.store.schema.types import seconds_from_now
from peerd.testing import eventually
from peerd.web.pages.addresses import Subject
from peerd.web.pages.dashboard import ACTIONS
from tests.pages.live.conftest import PHONE, Open
from tests.pages.live.studio import WITHIN, Studio
from tests.pages.live.visible import assert_seen
from tests.web.access_world import bearer

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
Prepare = Callable[[Studio], str]
Check = Callable[[Studio, str], Any]


def task_in(status: Status) -> Prepare:
    """A new task of a queue that no process serves, in a status."""

    def prepare(studio: Studio) -> str:
        client = studio.client
        job = client.enqueue("shelf", name="store", body={"disk": 1}, start_in="5h")
        if status is Status.BURIED:
            client.tasks.bury(job.id)
        elif status is Status.CANCELED:
            client.tasks.cancel(job.id, "not needed")
        return str(job.id)

    return prepare


def running_task(studio: Studio) -> str:
    job = studio.client.enqueue("video", name="transcode", body={"source": "cut.mov", "seconds": 600})
    eventually(lambda: studio.client.tasks.get(job.id).status == Status.WORKING, timeout=WITHIN)
    return str(job.id)


def bulk_in(state: str) -> Prepare:
    """A bulk action whose next chunk is due in an hour."""

    def prepare(studio: Studio) -> str:
        studio.client.enqueue("shelf", name="store", start_in="5h")
        bulk = studio.client.bulk.create(BulkSnooze(60.0), TaskFilter(queue="shelf", status="scheduled"))
        values = {"state": state, "next_at": seconds_from_now(3600), "finished_at": None}
        later = sa.update(bulk_actions).where(bulk_actions.c.id == bulk.id).values(values)
        studio.client.database.run(sa.Connection.execute, later)
        return str(bulk.id)

    return prepare


def gone_node(studio: Studio) -> str:
    database = studio.client.database
    database.run(node_rows.register_incarnation, "studio-0", node_rows.new_incarnation(), replaces=None)
    gone = {"active": False, "incarnation": None}
    database.run(sa.Connection.execute, sa.update(nodes).where(nodes.c.name == "studio-0").values(gone))
    return "studio-0"


def stored_schedule(studio: Studio) -> str:
    names = {state.name for state in studio.client.schedules.list()}
    name = next(f"extra-{number}" for number in range(100) if f"extra-{number}" not in names)
    studio.client.schedules.create(name, queue="shelf", interval="1h")
    eventually(lambda: name in {state.name for state in studio.client.schedules.list()}, timeout=WITHIN)
    return name


def named(name: str, before: Callable[[Client], Any] = lambda _: None) -> Prepare:
    """Something that is there, after a change."""

    def prepare(studio: Studio) -> str:
        before(studio.client)
        return name

    return prepare


def task(is_so: Callable[[Task], bool]) -> Check:
    return lambda studio, key: is_so(studio.client.tasks.get(int(key)))


def bulk(*states: str) -> Check:
    return lambda studio, key: studio.client.bulk.get(int(key)).state in states


def disk(wanted: str) -> Check:
    """Whether a disk is in a state; "removed" if there is none."""
    return lambda s, key: {one.id: one.state for one in s.client.disks.list()}.get(int(key), "removed") == wanted


def enqueued(body: object) -> Check:
    """Whether there is such a task in the attic."""
    return lambda studio, _: any(task.json == body for task in studio.client.tasks.list(queue="attic"))


def listed(group: str, is_so: Callable[[Any], object]) -> Check:
    """Whether what has this name is there, and is so."""
    return lambda s, key: any(is_so(one) for one in getattr(s.client, group).list() if one.name == key)


def gone(group: str) -> Check:
    return lambda studio, key: not listed(group, lambda _: True)(studio, key)


def put_file(studio: Studio) -> str:
    studio.client.files.put(io.BytesIO(b"a scene that was cut"), "rushes/cut.mov")
    return "rushes/cut.mov"


def disk_in(state: str) -> Prepare:
    """A disk that its node has never reported, so that nothing happens to files; in a state."""

    def prepare(studio: Studio) -> str:
        disks = studio.client.disks
        number = disks.register(uuid.uuid4().hex, path="/srv/old", node="studio-2")
        if state != "active":
            {"drain": disks.drain, "lost": disks.lost}[state](number)
        page, headers = f"{studio.address}/disks/{number}", bearer(studio.token)
        eventually(lambda: httpx.get(page, headers=headers, timeout=WITHIN).is_success, timeout=WITHIN)
        return str(number)

    return prepare


def is_pinned(studio: Studio, key: str) -> bool:
    return studio.client.tasks.get(int(key)).node_id == studio.client.nodes.get("studio-1").id


def has_three_processes(studio: Studio, key: str) -> bool:
    return [one.kind for one in studio.client.nodes.state(key).slots].count("video") == 3


def is_in_vienna(studio: Studio, _: str) -> bool:
    """Whether the new schedule is there, which the schedulers see within a second."""
    listed = [one.definition for one in studio.client.schedules.list() if one.name == "nightly"]
    return [defined.timezone for defined in listed if defined] == ["Europe/Vienna"]


class Case(NamedTuple):
    """How an action is tried."""

    prepare: Prepare
    """Makes what it acts on, and returns its id or name."""
    notice: str
    """Part of the sentence that is shown afterwards."""
    is_done: Check
    given: Mapping[str, str] = {}
    """What is typed or chosen."""
    page: str | None = None
    """Where its button is; by default the page of its subject."""


CANCELED, BURIED = task_in(Status.CANCELED), task_in(Status.BURIED)
SCHEDULED = task_in(Status.SCHEDULED)
REASON, SHELF, SECOND, WEEKLY = "the film was withdrawn", named("shelf"), named("studio-2"), named("weekly")
PAUSED = named("shelf", lambda client: client.queues.pause("shelf"))
SCENE = named("films/2026/scene-01.mov")
DRAINED = named("studio-2", lambda client: client.nodes.drain("studio-2"))
DISABLED = named("weekly", lambda client: client.schedules.disable("weekly"))
LIMITED = named("shelf", lambda client: client.limits.set("shelf", running=1))
AGAIN = {"queue": "attic", "body": '{"disk": 7}'}
NEW = {"queue": "attic", "name": "store", "body": '{"disk": 8}', "priority": "5"}
LIMIT = {"queue": "shelf", "running": "3", "rate": "10/1m"}
NIGHTLY = {"name": "nightly", "queue": "shelf", "cron": "0 3 * * *", "timezone": "Europe/Vienna"}
CHANGED = {"priority": "77", "body": '{"disk": 2}'}
CASES: Final = {
    "tasks.retry": Case(CANCELED, "retried", task(lambda one: one.status == "pending")),
    "tasks.kick": Case(BURIED, "kicked", task(lambda one: one.status == "pending")),
    "tasks.cancel": Case(running_task, "canceled", task(lambda one: one.error == REASON), {"reason": REASON}),
    "tasks.snooze": Case(SCHEDULED, "starts in 9h", task(lambda one: one.status == "scheduled"), {"duration": "9h"}),
    "tasks.move": Case(running_task, "may run on studio-1", is_pinned, {"node": "studio-1"}),
    "tasks.requeue": Case(SCHEDULED, "in the queue attic", task(lambda one: one.queue == "attic"), {"queue": "attic"}),
    "tasks.change": Case(
        SCHEDULED, "changed: priority, body", task(lambda one: (one.priority, one.json) == (77, {"disk": 2})), CHANGED
    ),
    "tasks.bury": Case(SCHEDULED, "was buried", task(lambda one: one.status == "buried")),
    "tasks.delete": Case(CANCELED, "deleted", lambda studio, key: studio.client.tasks.find(int(key)) is None),
    "tasks.again": Case(CANCELED, "was enqueued", enqueued({"disk": 7}), AGAIN),
    "tasks.enqueue": Case(named(""), "was enqueued", enqueued({"disk": 8}), NEW, "/tasks"),
    "bulk.pause": Case(bulk_in("running"), "paused", bulk("paused")),
    "bulk.resume": Case(bulk_in("paused"), "goes on", bulk("running", "done")),
    "bulk.cancel": Case(bulk_in("running"), "canceled", bulk("canceled")),
    "queues.pause": Case(SHELF, "paused for 1h", listed("queues", lambda one: one.paused_until), {"duration": "1h"}),
    "queues.resume": Case(PAUSED, "open again", listed("queues", lambda one: not one.paused)),
    "queues.kick": Case(named("attic"), "now", lambda *_: True, {"limit": "3"}),
    "limits.set": Case(SHELF, "was set", lambda s, _: s.client.limits.list("shelf")[0].running == 3, LIMIT, "/limits"),
    "limits.remove": Case(
        LIMITED, "removed", lambda s, _: s.client.limits.list("shelf") == [], page="/queues/show?name=shelf"
    ),
    "nodes.drain": Case(SECOND, "claims no more", listed("nodes", lambda one: one.draining)),
    "nodes.undrain": Case(DRAINED, "claims tasks again", listed("nodes", lambda one: not one.draining)),
    "nodes.reload": Case(SECOND, "was requested", lambda *_: True, {"kinds": "video"}),
    "nodes.scale": Case(SECOND, "were requested", has_three_processes, {"kind": "video", "count": "3"}),
    "nodes.forget": Case(gone_node, "forgotten", gone("nodes")),
    "schedules.run": Case(
        WEEKLY, "was requested", lambda s, key: "hand" in {run.origin for run in s.client.schedules.runs(key)}
    ),
    "schedules.enable": Case(DISABLED, "is enabled", listed("schedules", lambda one: one.state == "on")),
    "schedules.disable": Case(WEEKLY, "is disabled", listed("schedules", lambda one: one.state == "disabled")),
    "schedules.create": Case(named(""), "was created", is_in_vienna, NIGHTLY, "/schedules"),
    "schedules.delete": Case(stored_schedule, "was deleted", gone("schedules")),
    "files.verify": Case(SCENE, "are verified by tasks", lambda s, _: s.client.tasks.list(name="verify")),
    "files.delete": Case(put_file, "was deleted", lambda s, _: s.client.files.list("rushes", "cut").files == []),
    "disks.drain": Case(disk_in("active"), "is drained", disk("drain")),
    "disks.readonly": Case(disk_in("active"), "gets no new copies", disk("readonly")),
    "disks.activate": Case(disk_in("drain"), "is in use", disk("active")),
    "disks.lost": Case(disk_in("active"), "is lost", disk("lost")),
    "disks.remove": Case(disk_in("lost"), "was removed", disk("removed")),
}
WITHOUT_SCRIPT: Final = "tasks.cancel", "tasks.enqueue", "nodes.scale", "schedules.create", "files.delete", "disks.lost"
"""Actions that are tried without JavaScript too: one for each kind of form, and on a narrow screen."""
OF_USERS: Final = {action.id for action in ACTIONS if action.subject in {Subject.USER, Subject.TOKEN}}
"""Where there are users, pages ask for a login: test_users has them."""


def confirm(page: Page, button: Locator, given: Mapping[str, str]) -> None:
    """Click a button, fill its form, and confirm."""
    button.click()
    form = page.locator("#confirm")
    expect(form).to_be_visible()
    for name, value in given.items():
        field = form.locator(f"[name='{name}']")
        is_list = field.evaluate("element => element.tagName") == "SELECT"
        field.select_option(value) if is_list else field.fill(value)
    form.locator("button.primary").click()


def carry_out(open_page: Open, studio: Studio, action_id: str, *, javascript: bool) -> None:
    case = CASES[action_id]
    [action] = [one for one in ACTIONS if one.id == action_id]
    studio.restore()
    key = case.prepare(studio)
    page = open_page(case.page or action.subject.page(key), javascript=javascript, width=1440 if javascript else PHONE)
    button = page.locator(f"main a.button[href^='{action.address(key)}']").first
    # What other programs have changed is seen in a second.
    eventually(lambda: button.count() or not page.reload(), timeout=WITHIN, message=action_id)
    assert button.inner_text().strip() == action.label
    confirm(page, button, case.given)
    assert_seen(page, case.notice)
    eventually(lambda: case.is_done(studio, key), timeout=WITHIN, message=action_id)
    if "/nodes/request/" in page.url and javascript:  # the page is live
        expect(page.locator("#request .chip", has_text="done")).to_be_visible(timeout=1000 * WITHIN)


def test_every_action_is_done_from_its_page(open_page: Open, studio: Studio) -> None:
    assert {action.id for action in ACTIONS} == CASES.keys() | OF_USERS
    for action_id, javascript in (*((one, True) for one in CASES), *((one, False) for one in WITHOUT_SCRIPT)):
        carry_out(open_page, studio, action_id, javascript=javascript)
        open_page.close()
