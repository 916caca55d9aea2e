from __future__ import annotations

from typing import Any

from peerd.runtime.messages.addressing import MAX_IN_FLIGHT, MAX_MESSAGE_BYTES
from peerd.supervision.control.channel import FrameChannel
from peerd.supervision.messages.message_router import FlowControl
from tests.support.rows import rows
from tests.unit.supervision.router_node import RouterNode


def test_a_flood_fills_only_the_share_of_its_sender(node: RouterNode) -> None:
    flooding_sender, other, site = node["video-1"], node["video-2"], node["site-1"]
    to = {"pid": site.peer.pid}
    for number in range(MAX_IN_FLIGHT + 50):
        node.send(flooding_sender, to, number)
        node.received("site-1")  # it is read, and not taken
    report = node.received("video-1")
    assert sum(frame["delivered"] for frame in report) == MAX_IN_FLIGHT
    assert {frame["error"] for frame in report if not frame["delivered"]} == {
        "too many unacknowledged messages for site-1 (process 104)"
    }
    node.send(other, to)
    assert node.received("video-2")[0]["delivered"] == 1
    node.send(flooding_sender, {"role": "workers"})
    [report] = node.received("video-1", "delivery")
    assert (report["delivered"], "for site-1" in report["error"]) == (2, True), "some do not get it"
    node.router.acknowledge(site, {"type": "taken", "count": MAX_IN_FLIGHT})
    node.send(flooding_sender, to)
    assert node.received("video-1")[0]["delivered"] == 1


def test_a_process_that_does_not_read_uses_no_more_of_the_masters_memory_than_its_limit(node: RouterNode) -> None:
    site = node["site-1"]
    senders = [node[slot] for slot in ("agent", "video-1", "video-2")]
    for number in range(60):
        for sender in senders:
            node.send(sender, {"pid": site.peer.pid}, number, data="x" * 250_000)
    assert isinstance(site.link, FrameChannel)
    assert site.link.has_unsent()
    assert len(site.link._outgoing) < 7 * 1024 * 1024
    assert site.link.send({"type": "stop"}), "there is room for messages of the master"


def test_quota_is_released_in_the_order_in_which_messages_were_sent() -> None:
    inboxes = FlowControl(max_messages=2, max_bytes=100)
    for sender, size in (("a", 60), ("b", 10), ("a", 30)):
        inboxes.record_sent("x", sender, size)
    assert [inboxes.has_room("x", sender, 20) for sender in "abc"] == [False, True, True]
    inboxes.acknowledge("x", 2)
    assert [inboxes.has_room("x", "a", size) for size in (70, 71)] == [True, False]
    inboxes.acknowledge("x", 99)
    inboxes.acknowledge("x", -1)
    inboxes.remove("x")
    assert inboxes._quota.used == inboxes._inboxes == {}


def test_waiting_messages_and_open_requests_are_limited_for_each_sender(router_node: RouterNode) -> None:
    agent, flooding, other = (router_node.begin("agent", "agent"), *map(router_node.begin, ("video-1", "video-2")))
    for number in range(MAX_IN_FLIGHT + 1):
        router_node.send(flooding, {"role": "agent"}, number)
    (report,) = router_node.received("video-1")
    assert report["delivered"] == 0
    assert "messages of this sender wait already" in report["error"]
    router_node.send(other, {"role": "agent"})
    assert router_node.received("video-2") == []
    router_node.end(flooding)
    router_node.router.open(router_node.now)
    assert len(router_node.received("agent")) == 1, "what the dead have sent and is not delivered is forgotten"
    router_node.router.acknowledge(agent, {"type": "taken", "count": 1})
    router_node.received("video-2")
    for number in range(MAX_IN_FLIGHT + 1):
        router_node.send_request(other, {"role": "agent"}, number)
    (report,) = router_node.received("video-2")
    assert report["reason"] == "undeliverable"
    assert len(router_node.router._awaiting_reply) == MAX_IN_FLIGHT


@rows("more, problem", [
    ({"to": {"role": "boss"}}, "a message is for all, workers, agent, random, or a process id"),
    ({"to": {"role": "agent", "kind": "video"}}, "is none of these"), ({"to": {"pid": True}}, "is none of these"),
    ({"to": {"pid": 101, "role": "all"}}, "is none of these"), ({"to": None}, "is none of these"),
    ({"to": {"role": "workers", "kind": "vidoe"}}, "no workers of the kind 'vidoe'; it has site, video"),
    ({"to": {"pid": 10**400}}, "this node has no process 1000"),
    ({"action": ""}, "its `action` must be"), ({"action": "a" * 201}, "its `action` must be"),
    ({"data": float("nan")}, "cannot be written as JSON"),
    ({"data": "x" * (MAX_MESSAGE_BYTES + 4000)}, f"bytes, and {MAX_MESSAGE_BYTES} are allowed"),
    ({"request": "yes"}, "its `request` must be true or false"),
    ({"request": True, "timeout": 1.0, "to": {"role": "all"}}, "a request is for one process"),
    ({"request": True}, "its `timeout` must be seconds"),
    ({"request": True, "timeout": float("inf")}, "its `timeout` must be seconds"),
])  # fmt: skip
def test_a_malformed_message_is_answered_with_the_error(node: RouterNode, more: dict[str, Any], problem: str) -> None:
    node.send(node["video-1"], {"role": "agent"}, 7, **more)
    (report,) = node.received("video-1")
    assert report["id"] == 7
    assert problem in report["error"]
    assert node.received("agent") == []


def test_an_invalid_message_id_is_not_sent_back(node: RouterNode) -> None:
    for number in (None, "x" * 900_000, True, 1.5, 2**70, [1]):
        node.send(node["video-1"], {"role": "agent"}, id=number)
        assert node.received("video-1") == [
            {"type": "delivery", "id": None, "delivered": 0, "error": "malformed message: its `id` must be a number"}
        ]


def test_invalid_replies_and_counts_change_nothing(node: RouterNode) -> None:
    agent = node["agent"]
    node.send_request(node["video-1"], {"role": "agent"}, 5)
    (request,) = node.received("agent")
    for number in (None, "1", [request["id"]], True, request["id"] + 1):
        node.router.route_reply(agent, {"type": "reply", "id": number, "data": 1})
    for acknowledge in (None, "1", -5, 10**400, [3]):
        node.router.acknowledge(agent, {"type": "taken", "count": acknowledge})
    assert node.received("video-1") == []
    node.router.route_reply(agent, {"type": "reply", "id": request["id"], "data": "x" * (MAX_MESSAGE_BYTES + 4000)})
    (reply,) = node.received("video-1")
    assert (reply["reason"], reply["id"]) == ("handler", 5)
    assert f"{MAX_MESSAGE_BYTES} are allowed" in reply["error"]
