"""`peerd queues`, `nodes`, `limits`, `alerts` and `stats`: the state of a cluster, and what changes it."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest
import sqlalchemy as sa

from peerd.domain.access import Actor
from peerd.domain.alert import AlertReport
from peerd.domain.attempt_totals import AttemptTotals, Histogram
from peerd.domain.errors import QueueNotFound
from peerd.domain.lifecycle import Status
from peerd.domain.outcome import Failed
from peerd.operate.client import Client
from peerd.store.alerts import ReportAge, end_condition, record_alert
from peerd.store.attempt_series import BucketRow, write_buckets
from peerd.store.nodes import mark_node_silent, register_incarnation
from peerd.store.processes import end_process
from peerd.store.queue_states import sample_depths, write_depths
from peerd.store.rescue import release_tasks_of_process
from peerd.store.schema.tables import depths, nodes, tasks
from peerd.store.schema.types import seconds_from_now
from peerd.store.time_series import MINUTE, SAMPLE, TEN_MINUTES, bucket_start
from peerd.testing import insert_task
from tests.cli.conftest import Peerd
from tests.unit.operate.claiming_process import ClaimingProcess

AGO = seconds_from_now(-600.0)


def test_queues_are_listed_paused_and_resumed(peerd: Peerd, client: Client) -> None:
    assert peerd("queues", "list").lines == ["no queue has tasks"]
    client.enqueue_many(["video", "video", "mail"])
    peerd("queues", "pause", "mail", "--for", "1h")
    peerd("queues", "pause", "video")
    head, mail, video = peerd("queues", "list").lines
    assert head.split() == ["queue", "state", "pending", "oldest"]
    assert re.fullmatch(r"mail +paused, opens in (59 min|1 h) +1 +\d+ s", mail)
    assert re.fullmatch(r"video +paused +2 +\d+ s", video)
    peerd("queues", "resume", "video", "mail")
    states = peerd("queues", "list", "--json").json
    assert [(state["name"], state["paused"]) for state in states] == [("mail", False), ("video", False)]


def test_a_queue_that_was_never_served_is_shown_and_one_that_nobody_has_seen_is_refused(
    peerd: Peerd, client: Client, holder: ClaimingProcess
) -> None:
    client.enqueue_many(["viedo", "video"])
    _, video, viedo = peerd("queues", "list").lines
    assert re.fullmatch(r"video +open +1 +\d+ s", video)
    assert re.fullmatch(r"viedo +never served +1 +\d+ s", viedo)
    client.enqueue("mail")
    refusal = "there is no queue 'vidio'; known are, the nearest first: video, viedo, mail"
    for words in (("queues", "pause"), ("queues", "resume"), ("tasks", "kick", "--yes", "--queue")):
        assert refusal in peerd(*words, "vidio", status=1).err, words
    assert [queue.name for queue in client.queues.list()] == ["mail", "video", "viedo"]
    for words in (("queues", "pause"), ("queues", "resume"), ("nodes", "drain"), ("nodes", "undrain")):
        name = "viedo" if words[0] == "queues" else "video-1"
        answer = peerd(*words, name, "none", "mail", status=1)
        assert (answer.out.split()[0], "'none'" in answer.err) == (name, True), "what was done before the error"
        assert name in peerd(*words, name, "none", "--json", status=1).out
    assert not any(queue.paused for queue in client.queues.list())
    of_mail = client.acting_as(Actor.with_role("ann", "operator", queues=["mail", "vidio"]))
    with pytest.raises(QueueNotFound, match=r"the nearest first: mail$"):
        of_mail.queues.pause("vidio")


def test_a_queue_says_why_its_tasks_wait_and_when_they_are_gone(
    peerd: Peerd, client: Client, holder: ClaimingProcess
) -> None:
    assert peerd("queues", "why", "video").lines == ["nothing keeps its tasks waiting"]
    assert "no worker process has ever served vidoe; did you mean 'video'?" in peerd("queues", "why", "vidoe").err
    for job in client.enqueue_many(["video"] * 5, node="video-1"):
        client.database.run(sa.Connection.execute, sa.update(tasks).where(tasks.c.id == job.id).values(created_at=AGO))
    client.enqueue("video", start_in="1h")
    client.database.run(mark_node_silent, "video-1", holder.incarnation)
    client.database.run(sa.Connection.execute, sa.update(nodes).values(checked_at=AGO))
    client.database.run(write_depths, client.database.read(sample_depths))
    more = {"step": SAMPLE, "at": seconds_from_now(-300.0), "queue": "video", "status": "pending", "count": 10}
    client.database.run(sa.Connection.execute, sa.insert(depths).values(more))
    later, pinned, remedy = peerd("queues", "why", "video").lines
    assert later.startswith("note  queues  1 task is scheduled, the next one in 59m")
    assert pinned == "problem  pinned tasks  video: 5 of 5 waiting tasks are pinned to video-1, silent for 10m"
    assert remedy.endswith("peerd tasks move --queue video --node video-1 --status pending --to-any")
    client.database.run(sa.Connection.execute, sa.update(nodes).values(active=True))
    prospect = peerd("queues", "why", "video").lines[-1]
    assert prospect.startswith("5 wait: gone in about"), "where they are not pinned to a silent node"
    asked = (peerd("queues", "why", "video", "--json").json, *peerd("queues", "list", "--json").json)
    assert [one["prospect"]["waiting"] for one in asked] == [5, 5]
    client.database.run(sa.Connection.execute, sa.delete(tasks))
    client.database.run(write_depths, client.database.read(sample_depths))
    assert peerd("queues", "why", "video", "--json").json["prospect"] is None


def test_nodes_are_listed_drained_and_undrained(peerd: Peerd, client: Client, holder: ClaimingProcess) -> None:
    client.enqueue("video")
    holder.claim()
    peerd("nodes", "drain", "video-1")
    row = peerd("nodes", "list").lines[1]
    assert (row.split()[:2], row.split()[-4]) == (["video-1", "draining"], "1/4")
    peerd("nodes", "undrain", "video-1")
    [node] = peerd("nodes", "list", "--json").json
    assert (node["draining"], node["processes"][0]["pid"]) == (False, 4242)
    assert "known are: video-1" in peerd("nodes", "drain", "video-7", status=1).err


def test_a_node_that_is_gone_is_forgotten_and_a_living_one_is_not(
    peerd: Peerd, client: Client, holder: ClaimingProcess
) -> None:
    assert "is alive" in peerd("nodes", "forget", "video-1", status=1).err
    long_ago = sa.update(nodes).values(checked_at=seconds_from_now(-3600.0), active=False)
    client.database.run(lambda connection: connection.execute(long_ago).rowcount)
    pinned = client.enqueue("video", node="video-1")
    refused = peerd("nodes", "forget", "video-1", "--json", status=1).error
    assert "peerd tasks move --node video-1" in refused["message"]
    client.tasks.move(pinned.id, None)
    peerd("nodes", "forget", "video-1")
    assert client.nodes.list() == []


def test_a_node_that_does_not_answer_is_shown_with_the_cause_and_what_its_processes_were(
    peerd: Peerd, client: Client, holder: ClaimingProcess
) -> None:
    client.database.run(register_incarnation, "gone", "life", replaces=None)
    client.database.run(mark_node_silent, "gone", "life")
    shown = peerd("nodes", "show", "gone", status=1).lines
    assert any(re.fullmatch("master +–", line) for line in shown)
    assert shown[-1] == "node 'gone' cannot be reached: its heartbeats have ended; start it (peerd up)"
    client.database.run(mark_node_silent, "video-1", holder.incarnation)
    assert peerd("nodes", "show", "video-1", status=1).lines[-1].startswith("video-1 silent, last heartbeat 20")
    states = {one["name"]: one["processes"] for one in peerd("nodes", "list", "--json").json}
    assert [one["state"] for one in states["video-1"]] == ["silent"]
    task_id = client.enqueue("video").id
    holder.claim()
    client.database.run(release_tasks_of_process, holder.process_id, "killed by SIGKILL", crashed=True)
    client.database.run(end_process, holder.process_id, "killed by SIGKILL")
    last = peerd("nodes", "show", "video-1", status=1).lines[-1]
    assert re.fullmatch(rf"video-1 ended 20\S+: killed by SIGKILL; it ran task {task_id}", last)
    assert "cannot be reached" in peerd("reload", "--node", "gone", status=1).err
    assert "there is no node" in peerd("scale", "video", "2", "--node", "unknown", status=1).err


def test_limits_are_set_listed_and_removed(peerd: Peerd, client: Client) -> None:
    assert peerd("limits", "list").lines == ["no queue has limits"]
    for words, said in (
        ("uploads --running 8 --rate 1000/h", "uploads: at most 8 at once, at most 1,000 starts in 1h"),
        ("uploads --each-key --running 2", "each key of uploads: at most 2 at once"),
        ("uploads --key acme --rate 1/s", "key acme of uploads: at most 1 start in 1s"),
        ("mail --running 0", "mail: stopped"),
    ):
        assert peerd("limits", "set", *words.split()).lines == [said]
    for key in ("acme", "b", "b", None):
        insert_task(client.database, Status.WORKING, queue="uploads", limit_key=key)
    rows = [" ".join(row.split()) for row in peerd("limits", "list").lines[1:]]
    assert rows == [
        "mail all tasks 0 of 0 – –",
        "uploads all tasks 4 of 8 0 of 1,000 in 1h –",
        "uploads each key 2 – 1",
        "uploads acme 1 0 of 1 in 1s –",
    ]
    assert [row.split()[0] for row in peerd("limits", "list", "mail").lines[1:]] == ["mail"]
    assert peerd("limits", "list", "video").lines == ["video has no limits"]
    for said in ("key acme of uploads is no longer limited", "key acme of uploads had no limit"):
        assert peerd("limits", "remove", "uploads", "--key", "acme").lines == [said]
    assert peerd("limits", "remove", "uploads", "--each-key", "--json").json == {
        "queue": "uploads", "key": "*", "removed": True,
    }  # fmt: skip
    peerd("limits", "remove", "uploads")
    assert [limit.queue for limit in client.limits.list()] == ["mail"]
    for words, message in (
        ("uploads", "give running, rate or both"),
        ("uploads --running 1 --key *", "--key * is no key of a task"),
        ("uploads --running 1 --key a --each-key", "two limits at once"),
    ):
        assert message in peerd("limits", "set", *words.split(), "--json", status=2).error["message"], words
    set_one = peerd("limits", "set", "uploads", "--key", "a", "--running", "2", "--rate", "5/s", "--json").json
    assert set_one == {"queue": "uploads", "key": "a", "running": 2, "rate": "5/1s"}
    [listed] = peerd("limits", "list", "uploads", "--json").json
    assert (listed["starts"], listed["period"], listed["running_now"], listed["full_keys"]) == (5, 1.0, 0, None)


def test_alerts_are_listed_and_the_status_says_how_many_are_on(peerd: Peerd, client: Client) -> None:
    assert peerd("alerts", "list").lines == ["there is no such alert"]
    assert "alerts" not in peerd("status").out
    for found in ("backlog video", "dead-tasks mail", "unserved-queue viedo", "backlog mail"):
        kind, subject = found.split()
        text = f"{subject} \x1b[2J is late"
        record = AlertReport(kind=kind, subject=subject, node="one", text=text, data={"queue": subject})
        client.database.run(record_alert, record, ReportAge())
    client.database.run(end_condition, "backlog", "mail")
    page = peerd("alerts", "list").out
    assert "\x1b" not in page
    assert [" ".join(line.split()[:4]) for line in page.splitlines()[1:]] == [
        "4 ended backlog mail", "3 on unserved-queue viedo", "2 recent dead-tasks mail", "1 on backlog video",
    ]  # fmt: skip
    assert [one["subject"] for one in peerd("alerts", "list", "--on", "--json").json["items"]] == ["viedo", "video"]
    first = peerd("alerts", "list", "--kind", "backlog", "--limit", "1")
    assert first.lines[-1].split() == ["more:", "--after", "4"]
    status = peerd("status").out
    assert ("warning  backlog" in status, "problem  unserved-queue" in status) == (True, True)


@pytest.fixture
def history(client: Client) -> None:
    """Three minutes of two handlers in two queues."""
    present = bucket_start(client.now(), MINUTE)
    for minutes in (1, 2, 3):
        good = AttemptTotals({"done": 60}, 30.0, Histogram.of([0.5] * 60), Histogram.of([20.0] * 60))
        bad = AttemptTotals(
            {"done": 6, "failed": 3, "dead": 3}, 0.0, Histogram.of([9.0] * 12), Histogram.of([0.01] * 12)
        )
        rows = [
            BucketRow(MINUTE, present - timedelta(minutes=minutes), "video", "transcode", 1, 7, good),
            BucketRow(MINUTE, present - timedelta(minutes=minutes), "mail", "\x1b[31msend", 1, 7, bad),
        ]
        client.database.run(write_buckets, rows)


@pytest.mark.usefixtures("history")
def test_statistics_are_a_table_by_queue_and_by_handler_are_filtered_and_are_json(peerd: Peerd) -> None:
    out = peerd("stats").out
    lines = [line.split() for line in out.splitlines()]
    assert lines[0][:4] == ["queue", "done", "done/min", "failed"]
    assert [line[0] for line in lines[1:]] == ["video", "mail"], "the busiest is the first"
    assert lines[1][1] == "180"
    assert lines[2][3:5] == ["18", "50.0%"]
    out = peerd("stats", "--by", "handler", "--since", "10m").out
    assert "\\x1b[31msend" in out
    assert "\x1b" not in out
    assert set(out) - set(map(chr, range(128))) <= {"–"}
    answer = peerd("stats", "--queue", "mail", "--json").json
    assert [(row["queue"], row["figures"]["done"]) for row in answer["rows"]] == [("mail", 18)]
    assert [point["figures"]["done"] for point in answer["series"]] == [6, 6, 6]
    assert "no attempt has ended within 2m" in peerd("stats", "--queue", "none", "--since", "2m").out


@pytest.mark.usefixtures("history")
def test_handlers_are_compared_with_earlier_the_one_that_has_slowed_down_most_first(
    peerd: Peerd, client: Client
) -> None:
    yesterday = bucket_start(client.now() - timedelta(days=1, minutes=20), TEN_MINUTES)
    fast = AttemptTotals({"done": 10}, 1.0, Histogram.of([0.5] * 10), Histogram.of([5.0] * 10))
    client.database.run(write_buckets, [BucketRow(TEN_MINUTES, yesterday, "video", "transcode", 1, 7, fast)])
    out = peerd("stats", "--by", "handler", "--against", "1d").lines
    assert out[0].split()[:4] == ["queue", "handler", "slower", "run"]
    assert out[1].split()[:4] == ["video", "transcode", "×", "4.0"]
    assert out[2].split()[2] == "–", "of mail nothing is known of yesterday"
    rows = peerd("stats", "--by", "handler", "--against", "1d", "--json").json["rows"]
    assert {row["queue"]: row["before"]["done"] for row in rows} == {"video": 10, "mail": 0}


def test_errors_are_a_table_of_what_fails_most(peerd: Peerd, client: Client) -> None:
    assert "no attempt has failed within 1h" in peerd("errors", "--since", "1h").out
    worker = ClaimingProcess(client.database)
    for number in range(3):
        client.enqueue("mail", name="send", priority=100 - number)
        worker.run(Failed(error=f"KeyError: 'user-{number}'\x1b[2J"), "mail")
    lines = peerd("errors").lines
    assert lines[0].split()[:4] == ["attempts", "dead", "last", "(UTC)"]
    assert lines[1].split()[0] == "3"
    assert "KeyError: 'user-<n>'\\x1b[<n>J" in lines[1]
    [group] = peerd("errors", "--json").json["groups"]
    assert (group["count"], group["name"], group["search"]) == (3, "send", "KeyError: 'user-")


@pytest.mark.usefixtures("history")
def test_queues_are_listed_with_their_rates_and_the_status_shows_what_is_wrong(peerd: Peerd, client: Client) -> None:
    client.enqueue("mail")
    client.enqueue("new")
    assert {"done/min", "failed/min"} <= set(peerd("queues", "list").out.split())
    figures = {queue["name"]: queue["last_ten_minutes"] for queue in peerd("queues", "list", "--json").json}
    assert figures["mail"]["done"] == 18
    assert figures["new"] is None
    out = peerd("status").out
    for words in ("done/min", "no node is active: no task runs", "50% of the last 36 attempts of mail failed"):
        assert words in out
