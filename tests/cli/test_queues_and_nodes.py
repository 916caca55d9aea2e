"""`peerd queues` and `peerd nodes`."""

from __future__ import annotations

import re

import sqlalchemy as sa

from peerd.operate.client import Client
from peerd.store.nodes.nodes import mark_node_silent, register_incarnation
from peerd.store.schema.sql_clock import seconds_from_now
from peerd.store.schema.tables import nodes
from tests.cli.conftest import Peerd
from tests.unit.operate.claiming_process import ClaimingProcess


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
    assert [(state["name"], state["paused"], state["counts"]) for state in states] == [
        ("mail", False, {"pending": 1}),
        ("video", False, {"pending": 2}),
    ]


def test_a_queue_that_was_never_served_is_shown_and_is_paused_with_a_warning(
    peerd: Peerd, client: Client, holder: ClaimingProcess
) -> None:
    client.enqueue_many(["viedo", "video"])
    head, video, viedo = peerd("queues", "list").lines
    assert head.split() == ["queue", "state", "pending", "oldest"]
    assert re.fullmatch(r"video +open +1 +\d+ s", video)
    assert re.fullmatch(r"viedo +never served +1 +\d+ s", viedo)
    assert [state["known"] for state in peerd("queues", "list", "--json").json] == [True, False]
    assert "viedo" not in peerd("queues", "pause", "video").err
    answer = peerd("queues", "pause", "vidoe", "viedo", "video")
    assert answer.lines[0] == "vidoe is paused until it is resumed"
    assert answer.err.splitlines() == [
        "warning: no worker process has ever served vidoe; did you mean 'video'?",
        "warning: no worker process has ever served viedo; did you mean 'video'?",
    ]
    assert peerd("queues", "resume", "vidoe", "typo", "--json").json == {
        "resumed": ["vidoe", "typo"],
        "unknown": ["typo"],
    }


def test_nodes_are_listed_drained_and_undrained(peerd: Peerd, client: Client, holder: ClaimingProcess) -> None:
    client.enqueue("video")
    holder.claim()
    peerd("nodes", "drain", "video-1")
    head, row = peerd("nodes", "list").lines
    assert head.split()[:5] == ["node", "state", "seen", "processes", "running"]
    assert (row.split()[:2], row.split()[-4]) == (["video-1", "draining"], "1/4")
    peerd("nodes", "undrain", "video-1")
    [node] = peerd("nodes", "list", "--json").json
    assert (node["state"], node["draining"], node["processes"][0]["pid"]) == ("active", False, 4242)
    assert (node["running"], node["slots"]) == (1, 4)
    assert "known are: video-1" in peerd("nodes", "drain", "video-7", status=1).err


def test_a_node_that_is_gone_is_forgotten_and_a_living_one_is_not(
    peerd: Peerd, client: Client, holder: ClaimingProcess
) -> None:
    assert "is alive" in peerd("nodes", "forget", "video-1", status=1).err
    long_ago = sa.update(nodes).values(checked_at=seconds_from_now(-3600.0), active=False)
    client.database.run(lambda connection: connection.execute(long_ago).rowcount)
    pinned = client.enqueue("video", node="video-1")
    refused = peerd("nodes", "forget", "video-1", "--json", status=1).error
    assert "1 unfinished task" in refused["message"]
    assert "peerd tasks move --node video-1" in refused["message"]
    assert any(finding.subject == "nodes" and "video-1" in finding.message for finding in client.examine())
    client.tasks.move(pinned.id, None)
    assert peerd("nodes", "forget", "video-1", "--json").json == {"forgotten": ["video-1"]}
    assert client.nodes.list() == []
    assert not any("video-1" in finding.message for finding in client.examine())
    assert "there is no node" in peerd("nodes", "forget", "video-1", status=1).err


def test_a_node_that_does_not_answer_is_shown_with_the_cause(peerd: Peerd, client: Client) -> None:
    client.database.run(register_incarnation, "gone", "life", replaces=None)
    client.database.run(mark_node_silent, "gone", "life")
    shown = peerd("nodes", "show", "gone", status=1).lines
    assert any(re.fullmatch("master +–", line) for line in shown)
    assert shown[-1] == "node 'gone' cannot be reached: its heartbeats have ended; start it (peerd up)"
    assert peerd("nodes", "show", "gone", "--json", status=1).json["live"] is None
    assert "cannot be reached" in peerd("reload", "--node", "gone", status=1).err
    assert "there is no node" in peerd("scale", "video", "2", "--node", "unknown", status=1).err
