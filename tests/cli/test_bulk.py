"""Actions of the command line on what a filter finds, and ``peerd bulk``."""

from __future__ import annotations

import pytest

from peerd.domain.bulk import BulkCancel, BulkDelete, BulkRetry
from peerd.domain.lifecycle import Status
from peerd.operate.client import Client
from peerd.operate.task_filter import TaskFilter
from tests.cli.conftest import Peerd


@pytest.fixture
def ten(client: Client) -> list[int]:
    return [client.enqueue("video", name="transcode", priority=number).id for number in range(10)]


def test_a_dry_run_shows_what_would_be_done_and_does_nothing(peerd: Peerd, client: Client, ten: list[int]) -> None:
    answer = peerd("tasks", "cancel", "--queue", "video", "--where", "priority>=3", "--dry-run")
    assert answer.lines[0] == "would cancel 7 tasks"
    assert answer.lines[-1] == "… and 2 more"
    assert [line.split()[0] for line in answer.lines[2:7]] == [str(task_id) for task_id in ten[:4:-1]]
    found = peerd("tasks", "cancel", "--queue", "video", "--limit", "4", "--dry-run", "--json").json
    assert (found["matched"], found["at_least"], [task["id"] for task in found["examples"]]) == (4, False, ten[:5:-1])
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


def test_every_action_takes_a_filter(peerd: Peerd, client: Client, ten: list[int]) -> None:
    for words, past, status in (
        (("snooze", "--for", "1h"), "snoozed", Status.SCHEDULED),
        (("kick",), "kicked", Status.PENDING),
        (("move", "--to-queue", "other"), "moved", Status.PENDING),
        (("move", "--to-any"), "moved", Status.PENDING),
        (("change", "--body", "[1]"), "changed", Status.PENDING),
        (("bury",), "buried", Status.BURIED),
    ):
        assert peerd("tasks", *words, "--name", "transcode", "--yes").lines == [f"{past} 10 tasks"]
        assert client.tasks.counts()[status] == 10, words


def test_what_is_refused_is_listed_and_ends_with_a_status(peerd: Peerd, client: Client) -> None:
    old = client.enqueue("mail", unique="k").id
    client.tasks.cancel(old)
    younger = client.enqueue("mail", unique="k").id
    answer = peerd("tasks", "retry", "--status", "canceled", "--yes", status=1)
    assert f"task {old}: task {old} cannot run again" in answer.out
    assert answer.lines[-1] == "retried 0 tasks"
    assert f"belongs to task {younger}" in answer.out.replace("\n", " ")
    for words in (("delete", "1", "--dry-run"), ("retry", "1", "--no-wait"), ("kick", "--queue", "video", "--dry-run")):
        assert "--dry-run and --no-wait" in peerd("tasks", *words, status=2).err
    error = peerd("tasks", "retry", "--status", "pending", "--yes", "--json", status=1).error
    assert error["type"] == "IllegalTransition"
    for call in (client.bulk.preview, client.bulk.create):
        with pytest.raises(ValueError, match="all_tasks=True"):
            call(BulkRetry())
        with pytest.raises(ValueError, match="is no action"):
            call("retry", TaskFilter(queue="video"))  # type: ignore[arg-type]
    assert client.bulk.preview(BulkDelete(), all_tasks=True).matched == 2


def test_without_a_node_nothing_happens_until_it_is_watched(peerd: Peerd, client: Client, ten: list[int]) -> None:
    answer = peerd("tasks", "delete", "--queue", "video", "--yes", "--no-wait")
    [bulk] = client.bulk.list()
    assert answer.lines == [
        f"bulk action {bulk.id} begins; follow it with: peerd bulk watch {bulk.id}",
        "no node runs that carries it out: it waits for one",
    ]
    assert client.tasks.counts()[Status.PENDING] == 10
    assert peerd("bulk", "watch", str(bulk.id)).lines == ["acted on 10 tasks"]


def test_bulk_actions_are_listed_shown_paused_resumed_and_canceled(
    peerd: Peerd, client: Client, ten: list[int]
) -> None:
    assert peerd("bulk", "list").lines == ["there are no such bulk actions"]
    tasks = TaskFilter(queue="video", search="\x1b[2J", where=("priority>=3",))
    bulk = client.bulk.create(BulkDelete(), tasks)
    head, line = peerd("bulk", "list").lines
    assert head.split() == ["id", "action", "state", "done", "changed", "refused", "tasks"]
    assert line.split()[:3] == [str(bulk.id), "delete", "running"]
    for verb, state in (("pause", "paused"), ("resume", "running"), ("cancel", "canceled")):
        assert peerd("bulk", verb, str(bulk.id)).lines == [f"bulk action {bulk.id} is {state}: 0 of 0 done"]
    shown = peerd("bulk", "show", str(bulk.id)).out
    assert "--where 'priority>=3'" in shown
    assert "\x1b" not in shown
    assert peerd("bulk", "show", str(bulk.id), "--json").json["state"] == "canceled"
    assert "has ended" in peerd("bulk", "pause", str(bulk.id), status=1).err
    assert peerd("bulk", "show", "99", "--json", status=1).error["type"] == "BulkActionNotFound"
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
