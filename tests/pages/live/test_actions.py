"""Each action on running nodes, as a person does it: with the dialog of the script, and without JavaScript."""

from __future__ import annotations

import io
import uuid
from collections.abc import Callable, Mapping
from typing import Any, Final

import httpx
import msgspec
import pytest
import sqlalchemy as sa
from playwright.sync_api import Locator, Page, expect

from peerd import BulkSnooze, TaskFilter
from peerd.domain.lifecycle import Status
from peerd.store.nodes import nodes as node_rows
from peerd.store.schema.sql_clock import seconds_from_now
from peerd.store.schema.tables import bulk_actions, nodes
from peerd.testing import eventually
from peerd.web.pages.dashboard import ACTIONS
from peerd.web.pages.subjects import Subject
from tests.pages.live.conftest import PHONE, Open
from tests.pages.live.studio import WITHIN, Studio

pytestmark = pytest.mark.slow
Prepare = Callable[[Studio], str]


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


def named(name: str) -> Prepare:
    return lambda _: name


def paused_queue(studio: Studio) -> str:
    studio.client.queues.pause("shelf")
    return "shelf"


def drained_node(studio: Studio) -> str:
    studio.client.nodes.drain("studio-2")
    return "studio-2"


def disabled_schedule(studio: Studio) -> str:
    studio.client.schedules.disable("weekly")
    return "weekly"


def limited_queue(studio: Studio) -> str:
    studio.client.limits.set("shelf", running=1)
    return "shelf"


def status_of(studio: Studio, key: str) -> str:
    return studio.client.tasks.get(int(key)).status


def bulk_state(studio: Studio, key: str) -> str:
    return studio.client.bulk.get(int(key)).state


def time_zone(studio: Studio, name: str) -> str:
    definition = studio.client.schedules.get(name).definition
    assert definition is not None
    return definition.timezone


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
        page = f"{studio.address}/disks/{number}"
        eventually(lambda: httpx.get(page, timeout=WITHIN).is_success, timeout=WITHIN)  # seen within a second
        return str(number)

    return prepare


def disk_state(studio: Studio, key: str) -> str:
    return {disk.id: disk.state for disk in studio.client.disks.list()}.get(int(key), "removed")


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """How an action is tried.

    Attributes:
        prepare: makes what it acts on, and returns its id or name.
        given: what is typed or chosen.
        notice: part of the sentence that is shown afterwards.
        is_done: whether it is so.
        page: where its button is; by default the page of its subject.
    """

    prepare: Prepare
    notice: str
    is_done: Callable[[Studio, str], Any]
    given: Mapping[str, str] = {}
    page: str | None = None


CASES: Final = {
    "tasks.retry": Case(
        prepare=task_in(Status.CANCELED), notice="retried", is_done=lambda s, key: status_of(s, key) == "pending"
    ),
    "tasks.kick": Case(
        prepare=task_in(Status.BURIED), notice="kicked", is_done=lambda s, key: status_of(s, key) == "pending"
    ),
    "tasks.cancel": Case(
        prepare=running_task,
        given={"reason": "the film was withdrawn"},
        notice="canceled",
        is_done=lambda s, key: s.client.tasks.get(int(key)).error == "the film was withdrawn",
    ),
    "tasks.snooze": Case(
        prepare=task_in(Status.SCHEDULED),
        given={"duration": "9h"},
        notice="starts in 9h",
        is_done=lambda s, key: status_of(s, key) == "scheduled",
    ),
    "tasks.move": Case(
        prepare=running_task,
        given={"node": "studio-1"},
        notice="may run on studio-1",
        is_done=lambda s, key: s.client.tasks.get(int(key)).node_id == s.client.nodes.get("studio-1").id,
    ),
    "tasks.requeue": Case(
        prepare=task_in(Status.SCHEDULED),
        given={"queue": "attic"},
        notice="in the queue attic",
        is_done=lambda s, key: s.client.tasks.get(int(key)).queue == "attic",
    ),
    "tasks.change": Case(
        prepare=task_in(Status.SCHEDULED),
        given={"priority": "77", "body": '{"disk": 2}'},
        notice="changed: priority, body",
        is_done=lambda s, key: (task := s.client.tasks.get(int(key))).priority == 77 and task.json == {"disk": 2},
    ),
    "tasks.bury": Case(
        prepare=task_in(Status.SCHEDULED), notice="set aside", is_done=lambda s, key: status_of(s, key) == "buried"
    ),
    "tasks.delete": Case(
        prepare=task_in(Status.CANCELED),
        notice="deleted",
        is_done=lambda s, key: int(key) not in {task.id for task in s.client.tasks.list(queue="shelf", limit=500)},
    ),
    "tasks.again": Case(
        prepare=task_in(Status.CANCELED),
        given={"body": '{"disk": 7}', "queue": "attic"},
        notice="was enqueued",
        is_done=lambda s, _: any(task.json == {"disk": 7} for task in s.client.tasks.list(queue="attic")),
    ),
    "tasks.enqueue": Case(
        prepare=named(""),
        page="/tasks",
        given={"queue": "attic", "name": "store", "body": '{"disk": 8}', "priority": "5"},
        notice="was enqueued",
        is_done=lambda s, _: any(task.json == {"disk": 8} for task in s.client.tasks.list(queue="attic")),
    ),
    "bulk.pause": Case(
        prepare=bulk_in("running"),
        notice="paused",
        is_done=lambda s, key: bulk_state(s, key) == "paused",
    ),
    "bulk.resume": Case(
        prepare=bulk_in("paused"),
        notice="goes on",
        is_done=lambda s, key: bulk_state(s, key) != "paused",
    ),
    "bulk.cancel": Case(
        prepare=bulk_in("running"),
        notice="canceled",
        is_done=lambda s, key: bulk_state(s, key) == "canceled",
    ),
    "queues.pause": Case(
        prepare=named("shelf"),
        given={"duration": "1h"},
        notice="paused for 1h",
        is_done=lambda s, key: any(one.name == key and one.paused_until for one in s.client.queues.list()),
    ),
    "queues.resume": Case(
        prepare=paused_queue,
        notice="open again",
        is_done=lambda s, key: not any(one.name == key and one.paused for one in s.client.queues.list()),
    ),
    "queues.kick": Case(prepare=named("attic"), given={"limit": "3"}, notice="now", is_done=lambda *_: True),
    "limits.set": Case(
        prepare=named("shelf"),
        page="/limits",
        given={"queue": "shelf", "running": "3", "rate": "10/1m"},
        notice="was set",
        is_done=lambda s, _: s.client.limits.list("shelf")[0].running == 3,
    ),
    "limits.remove": Case(
        prepare=limited_queue,
        page="/queues/show?name=shelf",
        notice="removed",
        is_done=lambda s, _: s.client.limits.list("shelf") == [],
    ),
    "nodes.drain": Case(
        prepare=named("studio-2"),
        notice="claims no more",
        is_done=lambda s, key: s.client.nodes.get(key).draining,
    ),
    "nodes.undrain": Case(
        prepare=drained_node, notice="claims tasks again", is_done=lambda s, key: not s.client.nodes.get(key).draining
    ),
    "nodes.reload": Case(
        prepare=named("studio-2"), given={"kinds": "video"}, notice="was requested", is_done=lambda *_: True
    ),
    "nodes.scale": Case(
        prepare=named("studio-2"),
        given={"kind": "video", "count": "3"},
        notice="were requested",
        is_done=lambda s, key: len([one for one in s.client.nodes.state(key).slots if one.kind == "video"]) == 3,
    ),
    "nodes.forget": Case(
        prepare=gone_node,
        notice="forgotten",
        is_done=lambda s, key: key not in {node.name for node in s.client.nodes.list()},
    ),
    "schedules.run": Case(
        prepare=named("weekly"),
        notice="was requested",
        is_done=lambda s, key: any(run.origin == "hand" for run in s.client.schedules.runs(key)),
    ),
    "schedules.enable": Case(
        prepare=disabled_schedule,
        notice="is enabled",
        is_done=lambda s, key: s.client.schedules.get(key).state == "on",
    ),
    "schedules.disable": Case(
        prepare=named("weekly"),
        notice="is disabled",
        is_done=lambda s, key: s.client.schedules.get(key).state == "disabled",
    ),
    "schedules.create": Case(
        prepare=named(""),
        page="/schedules",
        given={"name": "nightly", "queue": "shelf", "cron": "0 3 * * *", "timezone": "Europe/Vienna"},
        notice="was created",
        is_done=lambda s, _: time_zone(s, "nightly") == "Europe/Vienna",
    ),
    "schedules.delete": Case(
        prepare=stored_schedule,
        notice="was deleted",
        is_done=lambda s, key: key not in {state.name for state in s.client.schedules.list()},
    ),
    "files.verify": Case(
        prepare=named("films/2026/scene-01.mov"),
        notice="are verified by tasks",
        is_done=lambda s, _: any(task.name == "verify" for task in s.client.tasks.list(queue="storage", limit=500)),
    ),
    "files.delete": Case(
        prepare=put_file,
        notice="was deleted",
        is_done=lambda s, _: s.client.files.list("rushes", "cut").files == [],
    ),
    "disks.drain": Case(
        prepare=disk_in("active"), notice="is drained", is_done=lambda s, key: disk_state(s, key) == "drain"
    ),
    "disks.readonly": Case(
        prepare=disk_in("active"),
        notice="gets no new copies",
        is_done=lambda s, key: disk_state(s, key) == "readonly",
    ),
    "disks.activate": Case(
        prepare=disk_in("drain"), notice="is in use", is_done=lambda s, key: disk_state(s, key) == "active"
    ),
    "disks.lost": Case(
        prepare=disk_in("active"), notice="is lost", is_done=lambda s, key: disk_state(s, key) == "lost"
    ),
    "disks.remove": Case(
        prepare=disk_in("lost"), notice="was removed", is_done=lambda s, key: disk_state(s, key) == "removed"
    ),
}
OF_USERS: Final = {action.id for action in ACTIONS if action.subject in {Subject.USER, Subject.TOKEN}}
"""Where there are users, pages ask for a login: test_users has them."""


def fill(form: Locator, given: Mapping[str, str]) -> None:
    """Type and choose what is asked for."""
    for name, value in given.items():
        field = form.locator(f"[name='{name}']")
        if field.evaluate("element => element.tagName") == "SELECT":
            field.select_option(value)
        else:
            field.fill(value)


def confirm(page: Page, button: Locator, given: Mapping[str, str]) -> None:
    """Click a button, fill its form, and confirm."""
    button.click()
    form = page.locator("#confirm")
    expect(form).to_be_visible()
    fill(form, given)
    form.locator("button.primary").click()


def test_every_action_is_tried() -> None:
    assert {action.id for action in ACTIONS} == CASES.keys() | OF_USERS


@pytest.mark.parametrize("action_id", CASES)
@pytest.mark.parametrize("javascript", [True, False], ids=["script", "no-script"])
def test_an_action(open_page: Open, studio: Studio, action_id: str, *, javascript: bool) -> None:
    case = CASES[action_id]
    [action] = [one for one in ACTIONS if one.id == action_id]
    studio.restore()
    key = case.prepare(studio)
    page = open_page(case.page or action.subject.page(key), javascript=javascript, width=1440 if javascript else PHONE)
    address = action.address(key)
    button = page.locator(f"main a.button[href^='{address}']").first
    eventually(
        lambda: button.count() or not page.reload(), timeout=WITHIN
    )  # what other programs do is seen in a second
    assert button.inner_text().strip() == action.label
    confirm(page, button, case.given)
    expect(page.locator(".notice").first).to_contain_text(case.notice)
    eventually(lambda: case.is_done(studio, key), timeout=WITHIN)
    if "/nodes/request/" in page.url and javascript:  # the page is live
        expect(page.locator("#request .chip", has_text="done")).to_be_visible(timeout=1000 * WITHIN)
