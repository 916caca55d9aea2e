"""`peerd tasks list`, `show`, `logs`, actions on tasks by their ids and by a filter, and `peerd bulk`."""

from __future__ import annotations

import base64
import json
import re
import tracemalloc
from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest
import sqlalchemy as sa

from peerd.cli import following
from peerd.domain.bulk import BulkCancel, BulkDelete, BulkRetry
from peerd.domain.lifecycle import Status
from peerd.domain.outcome import Failed
from peerd.operate.client import Client
from peerd.operate.task_filter import TaskFilter
from peerd.store.schema.tables import nodes, tasks
from peerd.store.schema.types import seconds_from_now
from peerd.store.tasks import pages
from peerd.store.tasks.log_lines import LoggedLine, write_lines
from tests.cli.conftest import Peerd
from tests.unit.operate.claiming_process import ClaimingProcess


@pytest.fixture
def three_tasks(client: Client, holder: ClaimingProcess) -> list[int]:
    """A dead task, a running one, and one that is scheduled."""
    ids = [client.enqueue("video", name="transcode", body={"source": "a.mp4"}).id]
    holder.run(Failed(error="OSError: the disk is full\nsecond line", traceback="Traceback (most recent call last)"))
    ids.append(client.enqueue("video", name="poster").id)
    holder.report(holder.claim(), 0.43, "\x1b[2J drawing")
    ids.append(client.enqueue("mail", start_in="1h").id)
    return ids


def test_tasks_are_listed_newest_first(peerd: Peerd, three_tasks: list[int]) -> None:
    head, scheduled, working, dead = peerd("tasks", "list").lines
    assert head.split() == ["id", "task", "status", "attempts", "node", "note"]
    assert scheduled.startswith("3  mail             scheduled  for ")
    assert working.split()[:4] == ["2", "video/poster", "working", "for"]
    assert re.search(r"1/3  video-1  43% [^\x1b]* drawing$", working)
    assert dead.startswith("1  video/transcode  dead       ")
    assert dead.endswith("1/3  video-1  OSError: the disk is full")


def test_tasks_are_listed_as_json_by_a_filter_and_in_pages(
    peerd: Peerd, three_tasks: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    def listed(*words: str) -> list[int]:
        return [row["id"] for row in peerd("tasks", "list", *words, "--json").json["items"]]

    page = peerd("tasks", "list", "--limit", "2", "--json").json
    assert peerd("tasks", "list", "--limit", "2").lines[-1] == f"more: --after {page['next']}"
    for words, expected in (
        (("--status", "dead"), three_tasks[:1]),
        (("--queue", "mail"), three_tasks[2:]),
        (("--name", "poster"), three_tasks[1:2]),
        (("--node", "video-1"), three_tasks[1::-1]),
        (("--after", page["next"]), three_tasks[:1]),
        (("--search", "DISK IS"), three_tasks[:1]),
        (("--where", "progress>0.4", "--where", "status=working"), three_tasks[1:2]),
    ):
        assert listed(*words) == expected, words
    assert peerd("tasks", "list", "--where", "id<1").lines == ["no such task"]
    monkeypatch.setattr(pages, "FIRST_EXAMINED", 1)
    monkeypatch.setattr(pages, "time", SimpleNamespace(monotonic=count().__next__))
    [none] = peerd("tasks", "list", "--where", "id<1").lines
    assert none.startswith("no such task among the first 1, which took a tenth of a second; search on with --after ")
    assert peerd("tasks", "list", "--where", "id<1", "--after", none.split()[-1]).out


def test_a_task_is_shown_with_its_attempts_and_the_state_of_its_node(
    peerd: Peerd, client: Client, three_tasks: list[int]
) -> None:
    page = peerd("tasks", "show", "1").out
    for words in ("task 1 video/transcode is dead", '"source": "a.mp4"', "the disk is full", "Traceback", "1 of 3"):
        assert words in page
    row = peerd("tasks", "show", "1", "--json").json
    assert (row["failed_attempts"][0]["outcome"], row["body"]) == ("dead", '{"source":"a.mp4"}')
    client.tasks.move(3, "video-1")
    for is_active, shown in ((True, "video-1"), (False, "video-1 (silent)")):
        client.database.run(sa.Connection.execute, sa.update(nodes).values(active=is_active, incarnation="1"))
        assert re.search(rf"only on +{re.escape(shown)} *$", peerd("tasks", "show", "3").out, re.MULTILINE)


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


def test_an_action_that_a_task_does_not_permit_is_listed_as_refused(
    peerd: Peerd, client: Client, three_tasks: list[int]
) -> None:
    answer = peerd("tasks", "cancel", "1", "2", "3", "99", "--json", status=1).json
    assert answer["tasks"] == [2, 3]
    assert [refusal["id"] for refusal in answer["refused"]] == [1, 99]
    assert "or buried; retry it instead" in peerd("tasks", "kick", "3", status=1).out
    assert "error: there is no task 7" in peerd("tasks", "show", "7", status=1).err
    for words in (("tasks", "delete"), ("tasks", "delete", "1", "--status", "dead")):
        assert "which tasks?" in peerd(*words, status=2).err
    assert "where to?" in peerd("tasks", "move", "1", status=2).err
    assert "--yes" in peerd("tasks", "delete", "--queue", "video", "--json", status=1).error["remedy"]
    assert "give --priority" in peerd("tasks", "change", "1", "--json", status=2).error["remedy"]
    assert "is not JSON" in peerd("tasks", "change", "1", "--body", "{", "--json", status=2).error["message"]


def test_the_buried_tasks_of_a_queue_are_kicked_in_the_order_in_which_they_were_buried(
    peerd: Peerd, client: Client
) -> None:
    first, second, third = (client.enqueue("mail").id for _ in range(3))
    for task_id in (third, first, second):
        client.tasks.bury(task_id)
    answer = peerd("tasks", "kick", "--queue", "mail", "--limit", "2", stdin="y\n")
    assert answer.lines[-1].endswith("kicked 2 tasks; there may be more")
    assert {client.tasks.get(task_id).status for task_id in (third, first)} == {Status.PENDING}
    assert peerd("tasks", "kick", "--queue", "mail", "--yes", "--json").json == {
        "verb": "kicked", "queue": "mail", "count": 1,
    }  # fmt: skip


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
    assert base64.b64decode(peerd("tasks", "show", str(job.id), "--json").json["body_bytes"]) == body
    head, line = peerd("queues", "list").lines
    assert (head.split(), line.split()[-2:]) == (["queue", "state", "working", "reserved"], ["1", "1"])


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


AT = datetime(2026, 1, 2, 3, 4, 5, 678_000, tzinfo=UTC)
FORGED = "\x1b[2Jall gone\n03:04:05.678 info     app: a forged line \u202e"


def write(client: Client, task_id: int, numbers: Sequence[int], lease: int = 1, **values: Any) -> None:
    rows = []
    for number in numbers:
        line: dict[str, Any] = {"at": AT, "level": "info", "logger": "app", "message": f"line {number}", "fields": None}
        given = line | values
        rows.append(LoggedLine(task_id=task_id, lease=lease, sequence=number, attempt=lease, **given))
    client.database.run(write_lines, rows)


def test_lines_are_shown_attempt_by_attempt_with_their_gaps(peerd: Peerd, client: Client) -> None:
    task_id = client.enqueue("mail").id
    assert peerd("tasks", "logs", str(task_id)).lines == ["no lines"]
    write(client, task_id, [0, 1, 7])
    write(client, task_id, [0], lease=2, level="error", fields='{"size": 3, "path": "a\\nb"}')
    assert peerd("tasks", "logs", str(task_id)).lines == [
        "attempt 1 (lease 1)",
        "03:04:05.678 info     app: line 0",
        "03:04:05.678 info     app: line 1",
        "… 5 lines were not kept",
        "03:04:05.678 info     app: line 7",
        "attempt 2 (lease 2)",
        "03:04:05.678 error    app: line 0 size=3 path=a\\nb",
    ]
    assert len(peerd("tasks", "logs", str(task_id), "--attempt", "2").lines) == 2
    assert len(peerd("tasks", "logs", str(task_id), "--level", "warning").lines) == 2
    peerd("tasks", "logs", str(task_id), "--level", "loud", status=2)
    search = ("logs", "--since", "366d", "--search")
    assert [one["line"]["sequence"] for one in peerd(*search, "LINE 7", "--json").json["items"]] == [7]
    assert peerd(*search, "line 7").lines == [f"01-02 task {task_id} 03:04:05.678 info     app: line 7"]
    assert peerd("logs", "--search", "line 7").lines == ["no line has this text"], "of the last day"
    assert "there is no task 99" in peerd("tasks", "logs", "99", status=1).err


def test_hostile_lines_neither_control_the_terminal_nor_look_like_others(peerd: Peerd, client: Client) -> None:
    task_id = client.enqueue("mail").id
    write(client, task_id, [0], message=FORGED, logger="a\nb", fields='{"a\\nb\\u001b": "\\u001b[1m"}')
    for words in (("logs",), ("show",)):
        out = peerd("tasks", *words, str(task_id)).out
        assert "\x1b" not in out
        assert "\u202e" not in out
        assert "\\x1b[2Jall gone" in out
        assert [line for line in out.splitlines() if "a forged line" in line] == [
            "    03:04:05.678 info     app: a forged line \\u202e"
        ]
    out = peerd("tasks", "logs", str(task_id), "--json").out
    assert ("\x1b" in out, json.loads(out)["message"]) == (False, FORGED)


def test_following_ends_with_the_task(peerd: Peerd, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    task_id = client.enqueue("mail").id
    write(client, task_id, range(following.PAGE + 10))

    def go_on(seconds: float) -> None:
        """When all that is there was read."""
        write(client, task_id, [following.PAGE + 10])
        ended = {"status": "done", "finished_at": seconds_from_now(-60)}
        client.database.run(
            lambda connection: connection.execute(sa.update(tasks).where(tasks.c.id == task_id).values(ended)).rowcount
        )

    monkeypatch.setattr(following, "time", SimpleNamespace(sleep=go_on))
    lines = peerd("tasks", "logs", str(task_id), "--follow", "--json").lines
    assert [json.loads(line)["sequence"] for line in lines] == list(range(following.PAGE + 11))


def test_show_has_the_last_lines_of_the_latest_attempt(peerd: Peerd, client: Client) -> None:
    task_id = client.enqueue("mail").id
    assert "log lines" not in peerd("tasks", "show", str(task_id)).out
    write(client, task_id, range(3))
    write(client, task_id, range(9), lease=2)
    lines = peerd("tasks", "show", str(task_id)).lines
    start = lines.index("log lines: 12, the last of attempt 2")
    assert [line.split()[-1] for line in lines[start + 1 : start + 6]] == ["4", "5", "6", "7", "8"]
    assert peerd("tasks", "show", str(task_id), "--json").json["log_lines"] == 12


@pytest.fixture
def ten(client: Client) -> list[int]:
    return [client.enqueue("video", name="transcode", priority=number).id for number in range(10)]


def test_a_dry_run_shows_what_would_be_done_and_does_nothing(peerd: Peerd, client: Client, ten: list[int]) -> None:
    answer = peerd("tasks", "cancel", "--queue", "video", "--where", "priority>=3", "--dry-run")
    assert answer.lines[0] == "would cancel 7 tasks"
    assert answer.lines[-1] == "… and 2 more"
    assert [line.split()[0] for line in answer.lines[2:7]] == [str(task_id) for task_id in ten[:4:-1]]
    assert client.tasks.counts()[Status.PENDING] == 10
    assert client.bulk.list() == []


def test_a_filter_is_acted_on_as_one_bulk_action(peerd: Peerd, client: Client, ten: list[int]) -> None:
    answer = peerd("tasks", "cancel", "--queue", "video", "--where", "priority<4", stdin="y\n")
    assert "cancel 4 tasks?" in answer.err
    assert answer.lines[-1] == "canceled 4 tasks"
    [bulk] = client.bulk.list()
    assert (bulk.done, bulk.state, bulk.action) == (4, "done", BulkCancel())
    row = peerd("tasks", "change", "--queue", "video", "--priority", "99", "--yes", "--json").json
    assert (row["done"], row["progress"], row["action"]) == (6, 1.0, {"type": "change", "priority": 99, "body": None})
    assert peerd("tasks", "delete", "--all", "--yes").lines[-1] == "deleted 10 tasks"
    assert peerd("tasks", "delete", "--all", "--yes").lines == ["no such task"]


def test_what_is_refused_is_listed_and_ends_with_a_status(peerd: Peerd, client: Client) -> None:
    old = client.enqueue("mail", unique="k").id
    client.tasks.cancel(old)
    younger = client.enqueue("mail", unique="k").id
    answer = peerd("tasks", "retry", "--status", "canceled", "--yes", status=1)
    assert f"task {old}: task {old} cannot run again" in answer.out
    assert answer.lines[-1] == "retried 0 tasks"
    assert f"belongs to task {younger}" in answer.out.replace("\n", " ")
    for words in (("retry", "1", "--no-wait"), ("kick", "--queue", "video", "--dry-run")):
        assert "--dry-run and --no-wait" in peerd("tasks", *words, status=2).err
    for call in (client.bulk.preview, client.bulk.create):
        with pytest.raises(ValueError, match="all_tasks=True"):
            call(BulkRetry())
        with pytest.raises(ValueError, match="is no action"):
            call("retry", TaskFilter(queue="video"))  # type: ignore[arg-type]
    assert client.bulk.preview(BulkDelete(), all_tasks=True).matched == 2


def test_bulk_actions_are_listed_shown_paused_resumed_and_canceled(
    peerd: Peerd, client: Client, ten: list[int]
) -> None:
    assert peerd("bulk", "list").lines == ["there are no such bulk actions"]
    assert peerd("tasks", "bury", "--queue", "video", "--yes", "--no-wait").lines == [
        "bulk action 1 begins; follow it with: peerd bulk watch 1",
        "no node runs that carries it out: it waits for one",
    ]
    assert peerd("bulk", "watch", "1").lines == ["acted on 10 tasks"]
    bulk = client.bulk.create(BulkDelete(), TaskFilter(queue="video", search="\x1b[2J", where=("priority>=3",)))
    assert peerd("bulk", "list").lines[1].split()[:3] == [str(bulk.id), "delete", "running"]
    for verb, state in (("pause", "paused"), ("resume", "running"), ("cancel", "canceled")):
        assert peerd("bulk", verb, str(bulk.id)).lines == [f"bulk action {bulk.id} is {state}: 0 of 0 done"]
    shown = peerd("bulk", "show", str(bulk.id)).out
    assert "--where 'priority>=3'" in shown
    assert "\x1b" not in shown
    assert "has ended" in peerd("bulk", "pause", str(bulk.id), status=1).err
    assert peerd("bulk", "list", "--state", "gone", "--json", status=2).error["type"] == "InvalidFilter"
    assert [one["id"] for one in peerd("bulk", "list", "--state", "canceled", "--json").json] == [bulk.id]


def test_ctrl_c_leaves_it_and_says_how_to_go_on(
    peerd: Peerd, client: Client, ten: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    bulk = client.bulk.create(BulkCancel(), TaskFilter(queue="video"))

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("peerd.cli.tasks.bulk.render_bulk", interrupt)
    answer = peerd("bulk", "watch", str(bulk.id), status=130)
    assert f"bulk action {bulk.id} is left as it is; peerd bulk watch, pause or cancel {bulk.id}" in answer.err
    assert client.bulk.get(bulk.id).state == "running"
