"""`peerd tasks list`, `show`, and actions on tasks."""

from __future__ import annotations

import base64
import re
import tracemalloc
from typing import Any

import pytest
import sqlalchemy as sa

from peerd.domain.lifecycle import Status
from peerd.domain.outcome import Done, Failed
from peerd.operate.client import Client
from peerd.store.schema.sql_clock import seconds_from_now
from peerd.store.schema.tables import tasks
from tests.cli.conftest import Peerd
from tests.unit.operate.claiming_process import ClaimingProcess


@pytest.fixture
def three_tasks(client: Client, holder: ClaimingProcess) -> list[int]:
    """A dead task, a running one, and one that is scheduled."""
    ids = [client.enqueue("video", name="transcode", body={"source": "a.mp4"}).id]
    holder.run(Failed(error="OSError: the disk is full\nsecond line", traceback="Traceback (most recent call last)"))
    ids.append(client.enqueue("video", name="poster").id)
    holder.report(holder.claim(), 0.43, "drawing")
    ids.append(client.enqueue("mail", start_in="1h").id)
    return ids


def test_tasks_are_listed_newest_first(peerd: Peerd, three_tasks: list[int]) -> None:
    head, scheduled, working, dead = peerd("tasks", "list").lines
    assert head.split() == ["id", "task", "status", "tries", "node", "note"]
    assert scheduled.startswith("3  mail             scheduled  for ")
    assert working.split()[:4] == ["2", "video/poster", "working", "for"]
    assert working.endswith("1/3  video-1  43% drawing")
    assert dead.startswith("1  video/transcode  dead       ")
    assert dead.endswith("1/3  video-1  OSError: the disk is full")


def test_tasks_are_listed_as_json_by_a_filter_and_in_pages(peerd: Peerd, three_tasks: list[int]) -> None:
    def listed(*words: str) -> list[int]:
        return [row["id"] for row in peerd("tasks", "list", *words, "--json").json["items"]]

    rows = peerd("tasks", "list", "--json").json["items"]
    assert [row["id"] for row in rows] == three_tasks[::-1]
    assert (rows[1]["worker_node"], rows[1]["progress"], rows[1]["status"]) == ("video-1", 0.43, "working")
    assert rows[0]["start_at"].endswith("Z")
    page = peerd("tasks", "list", "--limit", "2", "--json").json
    assert peerd("tasks", "list", "--limit", "2").lines[-1] == f"more: --after {page['next']}"
    for words, expected in (
        (("--status", "dead"), three_tasks[:1]),
        (("--queue", "mail"), three_tasks[2:]),
        (("--name", "poster"), three_tasks[1:2]),
        (("--node", "video-1"), three_tasks[1::-1]),
        (("--limit", "1"), three_tasks[2:]),
        (("--after", page["next"]), three_tasks[:1]),
        (("--search", "DISK IS"), three_tasks[:1]),
        (("--where", "progress>0.4", "--where", "status=working"), three_tasks[1:2]),
    ):
        assert listed(*words) == expected, words
    assert peerd("tasks", "list", "--where", "id<1").lines == ["no such task"]
    assert peerd("tasks", "list", "--where", "id<1", "--json").json == {"items": [], "next": None, "examined": 3}


def test_a_task_is_shown_with_its_attempts(peerd: Peerd, three_tasks: list[int]) -> None:
    page = peerd("tasks", "show", "1").out
    for words in ("task 1 video/transcode is dead", '"source": "a.mp4"', "the disk is full", "Traceback", "1 of 3"):
        assert words in page
    row = peerd("tasks", "show", "1", "--json").json
    assert (row["failed_attempts"][0]["outcome"], row["body"]) == ("dead", '{"source":"a.mp4"}')


def test_text_of_a_task_cannot_control_the_terminal(peerd: Peerd, client: Client, holder: ClaimingProcess) -> None:
    client.enqueue("video", name="\x1b[2J")
    holder.run(Failed(error="\x1b]0;owned\x07"))
    for words in (("tasks", "list"), ("tasks", "show", "1")):
        assert "\x1b" not in peerd(*words).out


ACTIONS: tuple[tuple[tuple[str, ...], str, int, dict[str, Any]], ...] = (
    (("retry", "1"), "retried 1 task", 1, {"status": Status.PENDING}),
    (("move", "2", "--to", "video-1"), "moved 1 task", 2, {"status": Status.PENDING, "node_id": 1}),
    (("move", "2", "--to-any"), "moved 1 task", 2, {"node_id": None}),
    (("move", "2", "--to-queue", "other"), "moved 1 task", 2, {"queue": "other"}),
    (("change", "2", "--priority", "20", "--body", "[1]"), "changed 1 task", 2, {"priority": 20, "json": [1]}),
    (("snooze", "2", "--for", "1h"), "snoozed 1 task", 2, {"status": Status.SCHEDULED}),
    (("bury", "2", "3"), "buried 2 tasks", 3, {"status": Status.BURIED}),
    (("kick", "3"), "kicked 1 task", 3, {"status": Status.PENDING}),
    (("cancel", "3", "--reason", "not today"), "canceled 1 task", 3, {"error": "not today"}),
    (("delete", "1", "3"), "deleted 2 tasks", 2, {"status": Status.BURIED}),
)
"""Words, what is said, and what a task has then; task 1 is dead, 2 runs on video-1, and 3 is scheduled."""


def test_tasks_are_acted_on_by_their_ids(peerd: Peerd, client: Client, three_tasks: list[int]) -> None:
    for words, said, task_id, found in ACTIONS:
        assert peerd("tasks", *words).lines == [said]
        task = client.tasks.get(task_id)
        assert {name: getattr(task, name) for name in found} == found, words
    assert [task.id for task in client.tasks.list()] == [2]
    assert re.search(
        r"is buried.*counters +reserves 0, timeouts 0, releases 0, buries 1, kicks 0",
        peerd("tasks", "show", "2").out.replace("\n", " "),
    )


def test_an_action_that_a_task_does_not_permit_is_listed_as_refused(
    peerd: Peerd, client: Client, three_tasks: list[int]
) -> None:
    answer = peerd("tasks", "cancel", "1", "2", "3", "99", "--json", status=1).json
    assert answer["tasks"] == [2, 3]
    assert [refusal["id"] for refusal in answer["refused"]] == [1, 99]
    assert "cannot bury a task that is dead" in peerd("tasks", "bury", "1", status=1).out
    assert "cannot kick a task that is canceled" in peerd("tasks", "kick", "3", status=1).out
    assert peerd("tasks", "show", "7", "--json", status=1).error["type"] == "TaskNotFound"
    assert "error: there is no task 7" in peerd("tasks", "show", "7", status=1).err
    for words in (("tasks", "delete"), ("tasks", "delete", "1", "--status", "dead")):
        assert "which tasks?" in peerd(*words, status=2).err
    assert "where to?" in peerd("tasks", "move", "1", status=2).err
    assert "--yes" in peerd("tasks", "delete", "--queue", "video", "--json", status=1).error["remedy"]
    assert "give --priority" in peerd("tasks", "change", "1", "--json", status=2).error["remedy"]
    assert "is not JSON" in peerd("tasks", "change", "1", "--body", "{", "--json", status=2).error["message"]
    error = peerd("tasks", "list", "--status", "finished", "--json", status=2).error
    assert error["type"] == "InvalidFilter"
    assert "scheduled, pending, working" in error["message"]


def test_the_buried_tasks_of_a_queue_are_kicked_in_the_order_in_which_they_were_buried(
    peerd: Peerd, client: Client
) -> None:
    first, second, third = (client.enqueue("mail").id for _ in range(3))
    delayed = client.enqueue("mail", start_in="1h").id
    for task_id in (third, first, second):
        client.tasks.bury(task_id)
    answer = peerd("tasks", "kick", "--queue", "mail", "--limit", "2", stdin="y\n")
    assert answer.lines[-1].endswith("kicked 2 tasks; there may be more")
    assert {client.tasks.get(task_id).status for task_id in (third, first)} == {Status.PENDING}
    assert peerd("tasks", "kick", "--queue", "mail", "--yes", "--json").json == {
        "verb": "kicked", "queue": "mail", "count": 1,
    }  # fmt: skip
    assert client.tasks.get(delayed).status is Status.SCHEDULED
    peerd("tasks", "kick", "--queue", "mail", "--yes")
    assert client.tasks.get(delayed).status is Status.PENDING, "as there were no buried ones"
    assert "is not 1 to 200 of" in peerd("tasks", "kick", "--queue", "no queue", "--yes", status=2).err
    assert "--yes" in peerd("tasks", "kick", "--queue", "mail", "--json", status=1).error["remedy"]


def test_a_job_of_a_queue_client_is_shown_with_its_reservation(peerd: Peerd, client: Client) -> None:
    body = b"\x89PNG\r\n\x1b[2J" + bytes(1000)
    job = client.enqueue("thumbs", bytes=body)
    values = {"ttr": 90, "delay": 5, "status": "working", "reserves": 3, "timeouts": 2, "worker_node_id": 1}
    reserved = sa.update(tasks).where(tasks.c.id == job.id).values(**values, deadline_at=seconds_from_now(90))
    client.database.run(lambda connection: connection.execute(reserved).rowcount)
    page = peerd("tasks", "show", str(job.id)).out
    for pattern in (
        r"holder +a queue client of node 1,",
        r"deadline +\d{4}-.* UTC \(in ",
        r"reserved for +1m30s at a time \(ttr\)",
        r"delay +5s",
        r"counters +reserves 3, timeouts 2, releases 0, buries 0, kicks 0",
        r"1,010 bytes: +\\x89PNG\\r\\n\\x1b\[2J\\x00.* … and 810 more",
    ):
        assert re.search(pattern, page.replace("\n", " ")), pattern
    assert "\x1b" not in page
    row = peerd("tasks", "show", str(job.id), "--json").json
    assert (row["ttr"], row["reserves"], base64.b64decode(row["body_bytes"])) == (90, 3, body)
    head, line = peerd("queues", "list").lines
    assert (head.split(), line.split()[-2:]) == (["queue", "state", "working", "reserved"], ["1", "1"])
    [state] = peerd("queues", "list", "--json").json
    assert (state["counts"], state["reserved"]) == ({"working": 1}, 1)


def test_an_action_on_what_a_filter_finds_needs_a_confirmation(
    peerd: Peerd, client: Client, holder: ClaimingProcess
) -> None:
    for _ in range(3):
        client.enqueue("video")
        holder.run(Failed(error="no"))
    client.enqueue("video")
    holder.run(Done())
    peerd("tasks", "retry", "--status", "dead", stdin="n\n", status=1)
    assert client.tasks.counts()[Status.DEAD] == 3
    peerd("tasks", "retry", "--status", "dead", "--limit", "1", stdin="y\n")
    assert client.tasks.counts()[Status.DEAD] == 2
    peerd("tasks", "retry", "--status", "dead", "--yes")
    assert client.tasks.counts()[Status.DEAD] == 0
    assert client.tasks.counts()[Status.DONE] == 1


def test_an_action_skips_tasks_that_have_changed_since_the_filter_found_them(
    peerd: Peerd, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    changed, same = (client.enqueue("video").id for _ in range(2))

    def change_and_agree(*_: object, **__: object) -> bool:
        client.tasks.cancel(changed)
        return True

    monkeypatch.setattr("typer.confirm", change_and_agree)  # it changes during the confirmation
    answer = peerd("tasks", "delete", "--status", "pending")
    assert answer.lines == ["deleted 1 task; 1 has changed since it was found"]
    assert client.tasks.find(same) is None
    assert client.tasks.get(changed).status == "canceled"


def test_a_list_reads_neither_bodies_nor_results(peerd: Peerd, client: Client, holder: ClaimingProcess) -> None:
    body = "x" * 2_000_000
    for _ in range(30):
        client.enqueue("video", text=body)
    tracemalloc.start()
    rows = peerd("tasks", "list", "--json").json["items"]
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(rows) == 30
    assert not {"body", "body_bytes", "result"} & rows[0].keys()
    assert most < 20_000_000
    assert peerd("tasks", "show", str(rows[0]["id"]), "--json").json["body"] == body
    assert [task.body for task in client.tasks.list(limit=1)] == [body]
