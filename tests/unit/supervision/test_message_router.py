from __future__ import annotations

from typing import Any

from peerd.runtime.frames import MAX_IN_FLIGHT, MAX_MESSAGE_BYTES
from peerd.supervision.event_loop import FrameChannel
from peerd.supervision.message_router import WAIT_TIMEOUT, FlowControl
from tests.support.rows import rows
from tests.unit.supervision.conftest import RouterNode


@rows("to, receivers", [
    ({"role": "all"}, {"agent", "video-1", "video-2", "site-1"}),
    ({"role": "workers", "kind": None}, {"video-1", "video-2", "site-1"}),
    ({"role": "workers", "kind": "video"}, {"video-1", "video-2"}),
    ({"role": "random", "kind": "video"}, {"video-2"}), ({"role": "agent"}, {"agent"}), ({"pid": 104}, {"site-1"}),
])  # fmt: skip
def test_a_message_reaches_its_recipients(node: RouterNode, to: object, receivers: set[str]) -> None:
    sender = node["video-1"]
    node.send(sender, to, 7)
    received = {slot: node.received(slot) for slot in node.ends}
    assert {"type": "delivery", "id": 7, "delivered": len(receivers), "error": None} in received["video-1"]
    got = {slot: frame for slot, frames in received.items() for frame in frames if frame["type"] == "message"}
    assert set(got) == receivers
    for frame in got.values():
        assert (frame["action"], frame["data"], frame["request"]) == ("hello", {"n": 7}, False)
        assert frame["from"] == sender.peer.to_json()


def test_the_list_of_processes_is_sent_after_each_change_and_only_then(node: RouterNode) -> None:
    names = [[peer["slot"] for peer in one["processes"]] for one in node.received("agent", "processes")]
    everyone = ["agent", "video-1", "video-2", "site-1"]
    assert names == [everyone[:count] for count in (1, 2, 3, 4)]
    node.advance()
    node.begin("video-3", ready=False)
    assert node.received("agent", "processes") == [], "one that boots is not there yet"
    node.end(node["agent"])
    (report,) = node.received("site-1", "processes")[-1:]
    assert [peer["slot"] for peer in report["processes"]] == ["video-1", "video-2", "site-1"]
    node.change(node["video-3"], ready=True)
    assert [peer["slot"] for peer in node.received("video-3", "processes")[-1]["processes"]][-1] == "video-3"


def test_messages_sent_before_the_node_is_ready_wait_and_keep_their_order(router_node: RouterNode) -> None:
    agent = router_node.begin("agent", "agent")
    router_node.send(agent, {"role": "workers"}, 1)
    router_node.send(agent, {"role": "agent"}, 2)
    router_node.begin("video-1")
    router_node.advance(after=1000.0)
    assert router_node.received("agent") == router_node.received("video-1") == []
    router_node.router.open(router_node.now)
    router_node.send(agent, {"role": "workers"}, 3)
    assert [frame["data"]["n"] for frame in router_node.received("video-1")] == [1, 3]
    assert [frame["data"]["n"] for frame in router_node.received("agent", "message")] == [2]


def test_messages_for_a_process_that_boots_or_is_replaced_wait_until_it_is_ready(node: RouterNode) -> None:
    video = node["video-1"]
    node.expected.add(("agent", "agent"))
    node.end(node["agent"])
    node.send(video, {"role": "agent"}, 1)
    node.send(video, {"role": "all"}, 2)
    delivered = [frame["delivered"] for frame in node.received("video-1", "delivery")]
    assert delivered == [3], "what is for all does not wait"
    new = node.begin("agent", "agent", ready=False)
    assert node.received("video-1") == []
    node.change(new, ready=True)
    assert [frame["data"]["n"] for frame in node.received("agent")] == [1]
    assert node.received("video-1") == [{"type": "delivery", "id": 1, "delivered": 1, "error": None}]
    booting = node.begin("video-3", ready=False)
    node.send(new, {"pid": booting.peer.pid}, 3)
    assert node.received("video-3") == []
    node.change(booting, ready=True)
    assert [frame["data"]["n"] for frame in node.received("video-3")] == [3]


def test_a_message_that_waits_too_long_is_undeliverable(node: RouterNode) -> None:
    video = node["video-1"]
    node.expected.add(("agent", "agent"))
    node.end(node["agent"])
    node.send(video, {"role": "agent"}, 1)
    node.send_request(video, {"role": "agent"}, 2)
    assert node.router.due_at <= node.now + WAIT_TIMEOUT + 1
    node.advance(after=12.0)
    assert node.received("video-1") == [{"type": "reply", "id": 2, "error": "timed out", "reason": "late"}]
    node.advance(after=WAIT_TIMEOUT)
    (report,) = node.received("video-1")
    assert (report["delivered"], report["error"]) == (0, "its recipient did not become ready within 30 s")
    assert node.router.due_at == float("inf")


def test_a_leaving_process_can_be_addressed_and_a_gateway_is_rung(node: RouterNode) -> None:
    leaving = node.change(node["video-2"], leaving=True)
    agent = node["agent"]
    node.send(agent, {"role": "workers"}, 1)
    node.send(agent, {"role": "random", "kind": "video"}, 2)
    assert node.chosen_from == ["video-1"]
    node.send(agent, {"pid": leaving.peer.pid}, 3)
    assert [frame["data"]["n"] for frame in node.received("video-2")] == [3]
    node.send_request(leaving, {"role": "agent"}, 4)
    (request,) = [frame for frame in node.received("agent") if frame["type"] == "message"]
    node.router.route_reply(agent, {"type": "reply", "id": request["id"], "data": "yes"})
    assert node.received("video-2") == [{"type": "reply", "id": 4, "data": "yes"}]
    agent, door = node["agent"], node.begin("door-1", "gateway")
    node.change(door, leaving=True)
    node.begin("door-2", "gateway")
    listed = node.received("agent", "processes")[-1]["processes"]
    assert {peer["pid"] for peer in listed if peer["role"] == "gateway"} >= {door.peer.pid}
    node.send(agent, {"role": "workers"}, 1)
    node.send(agent, {"role": "all"}, 2)
    node.send(agent, {"pid": door.peer.pid}, 3)
    assert [frame["data"]["n"] for frame in node.received("door-1", "message")] == [3]


def test_what_can_not_be_delivered_is_said(node: RouterNode) -> None:
    video = node["video-1"]
    manager = node.begin("manager", "manager")
    node.send(node["video-1"], {"pid": manager.peer.pid}, 1)
    node.send(node["video-1"], {"pid": 9999}, 2)
    assert [frame["error"] for frame in node.received("video-1")] == [
        f"process {manager.peer.pid} is the manager, which takes no messages",
        "this node has no process 9999",
    ]
    node.expected.add(("agent", "agent"))
    node.end(node["agent"])
    node.send(video, {"role": "agent"}, 1)
    node.router.close()
    node.send_request(video, {"role": "agent"}, 2)
    node.send(video, {"role": "workers", "kind": "site"}, 3)
    assert node.received("video-1") == [
        {"type": "delivery", "id": 1, "delivered": 0, "error": "the node is stopping"},
        {"type": "reply", "id": 2, "error": "the node is stopping", "reason": "undeliverable"},
        {"type": "delivery", "id": 3, "delivered": 1, "error": None},
    ]


def test_a_reply_is_delivered_once_and_only_from_the_recipient_of_the_request(node: RouterNode) -> None:
    video, agent, site = node["video-1"], node["agent"], node["site-1"]
    node.send_request(video, {"role": "agent"}, 5)
    (request,) = node.received("agent")
    assert request["request"] is True
    assert node.received("video-1") == [], "a request is answered with its reply"
    for _ in range(2):
        node.router.route_reply(site, {"type": "reply", "id": request["id"], "data": "forged"})
        node.router.route_reply(agent, {"type": "reply", "id": request["id"], "data": [1]})
    assert node.received("video-1") == [{"type": "reply", "id": 5, "data": [1]}]
    node.send_request(video, {"role": "agent"}, 6)
    (request,) = node.received("agent")
    node.router.route_reply(agent, {"type": "reply", "id": request["id"], "error": "ValueError: \ud800"})
    assert node.received("video-1") == [{"type": "reply", "id": 6, "error": "ValueError: ?", "reason": "handler"}]


def test_a_request_to_a_process_that_dies_is_answered_and_those_of_a_dead_one_dropped(node: RouterNode) -> None:
    video, agent, site = node["video-1"], node["agent"], node["site-1"]
    node.send_request(video, {"pid": site.peer.pid}, 5)
    node.end(site)
    (reply,) = node.received("video-1")
    assert (reply["id"], reply["reason"]) == (5, "died")
    assert reply["error"] == "site-1 (process 104) has died before it answered"
    node.send_request(video, {"role": "agent"}, 6)
    (request,) = node.received("agent")
    node.end(video)
    node.router.route_reply(agent, {"type": "reply", "id": request["id"], "data": 1})
    assert node.router._held.used == {}


def test_a_client_of_the_control_socket_can_send_the_agent_a_request(node: RouterNode) -> None:
    answers: list[Any] = []
    agent = node["agent"]
    node.router.call_agent("schedules", {"a": 1}, 5.0, answers.append, node.now)
    (request,) = node.received("agent")
    assert (request["action"], request["data"], request["from"]["role"]) == ("schedules", {"a": 1}, "control")
    node.router.route_reply(agent, {"type": "reply", "id": request["id"], "data": ["x"]})
    node.router.call_agent("schedules", None, 5.0, answers.append, node.now)
    node.advance(after=6.1)
    node.router.call_agent("schedules", None, "soon", answers.append, node.now)
    node.end(agent)
    node.router.call_agent("schedules", None, 5.0, answers.append, node.now)
    assert answers == [
        {"data": ["x"]},
        {"error": "'schedules': timed out"},
        {"error": "'schedules': malformed message: its `timeout` must be seconds, more than 0 and at most 86400"},
        {"error": "'schedules': the agent is stopping"},
    ]


def test_a_flood_fills_only_the_share_of_its_sender_and_bounded_memory(node: RouterNode) -> None:
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
    [of_some] = node.received("video-1", "delivery")
    assert (of_some["delivered"], "for site-1" in of_some["error"]) == (2, True), "some do not get it"
    node.router.acknowledge(site, {"type": "taken", "count": MAX_IN_FLIGHT})
    node.send(flooding_sender, to)
    assert node.received("video-1")[0]["delivered"] == 1
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
    ({"to": {"pid": 10**400}}, "this node has no process 1000"), ({"action": ""}, "its `action` must be"),
    ({"action": "a" * 201}, "its `action` must be"), ({"data": float("nan")}, "cannot be written as JSON"),
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


def test_invalid_replies_and_counts_change_nothing(node: RouterNode) -> None:
    agent = node["agent"]
    for number in (None, "x" * 900_000, True, 1.5, 2**70, [1]):
        node.send(node["video-1"], {"role": "agent"}, id=number)
        [report] = node.received("video-1")
        assert (report["id"], report["error"]) == (None, "malformed message: its `id` must be a number")
    node.send_request(node["video-1"], {"role": "agent"}, 5, timeout=2.5)
    node.advance(after=2.6)
    assert node.router._awaiting_reply, "its sender's own clock is first"
    node.advance(after=1.0)
    assert (node.router._awaiting_reply, node.router._held.used) == ({}, {})
    assert [reply["reason"] for reply in node.received("video-1")] == ["late"]
    node.received("agent")
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
