from __future__ import annotations

import re

from peerd.operate.client import Client
from tests.cli.conftest import Peerd
from tests.unit.operate.holder import Holder


def test_queues_are_listed_paused_and_resumed(peerd: Peerd, client: Client) -> None:
    assert peerd("queues", "list").lines == ["no queue has tasks"]
    client.enqueue_many(["video", "video", "mail"])
    peerd("queues", "pause", "mail", "--for", "1h")
    peerd("queues", "pause", "video")
    head, mail, video = peerd("queues", "list").lines
    assert head.split() == ["queue", "state", "pending"]
    assert re.fullmatch(r"mail +paused, opens in (59 min|1 h) +1", mail)
    assert video.split() == ["video", "paused", "2"]
    peerd("queues", "resume", "video", "mail")
    states = peerd("queues", "list", "--json").json
    assert [(state["name"], state["paused"], state["counts"]) for state in states] == [
        ("mail", False, {"pending": 1}),
        ("video", False, {"pending": 2}),
    ]


def test_a_pause_of_no_duration_is_refused(peerd: Peerd, client: Client) -> None:
    assert "'a while' is not a duration" in peerd("queues", "pause", "video", "--for", "a while", status=1).err
    assert client.queues.list() == []


def test_nodes_are_listed_drained_and_undrained(peerd: Peerd, client: Client, holder: Holder) -> None:
    peerd("nodes", "drain", "video-1")
    head, row = peerd("nodes", "list").lines
    assert head.split()[:4] == ["node", "state", "seen", "processes"]
    assert row.split()[:2] == ["video-1", "draining"]
    peerd("nodes", "undrain", "video-1")
    [node] = peerd("nodes", "list", "--json").json
    assert (node["state"], node["draining"], node["processes"][0]["pid"]) == ("active", False, 4242)
    assert "known are: video-1" in peerd("nodes", "drain", "video-7", status=1).err
