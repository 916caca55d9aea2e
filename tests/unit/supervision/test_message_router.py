from __future__ import annotations

from peerd.supervision.messages.message_router import WAIT_TIMEOUT
from tests.support.rows import rows
from tests.unit.supervision.router_node import RouterNode


@rows("to, receivers", [
    ({"role": "all"}, {"agent", "video-1", "video-2", "site-1"}),
    ({"role": "workers", "kind": None}, {"video-1", "video-2", "site-1"}),
    ({"role": "workers", "kind": "video"}, {"video-1", "video-2"}),
    ({"role": "random", "kind": "video"}, {"video-2"}), ({"role": "agent"}, {"agent"}), ({"pid": 104}, {"site-1"}),
])  # fmt: skip
def test_a_message_reaches_its_recipients_and_its_sender_gets_their_number(
    node: RouterNode, to: object, receivers: set[str]
) -> None:
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


def test_messages_for_an_agent_that_is_being_replaced_wait_for_the_next_one(node: RouterNode) -> None:
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


def test_messages_for_a_process_that_boots_or_is_replaced_wait_until_it_is_ready(node: RouterNode) -> None:
    agent, booting = node["agent"], node.begin("video-3", ready=False)
    node.send(agent, {"pid": booting.peer.pid})
    assert node.received("video-3") == []
    node.change(booting, ready=True)
    assert [frame["action"] for frame in node.received("video-3")] == ["hello"]
    node.expected.add(("site", "web"))
    node.end(node["site-1"])
    node.send(agent, {"role": "random", "kind": "site"})
    node.begin("site-1", "web")
    assert [frame["action"] for frame in node.received("site-1")] == ["hello"]


def test_a_leaving_process_is_excluded_from_broadcasts_but_can_be_addressed(node: RouterNode) -> None:
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


def test_a_gateway_is_rung_also_while_it_drains_and_gets_no_broadcasts(node: RouterNode) -> None:
    agent, door = node["agent"], node.begin("door-1", "gateway")
    node.change(door, leaving=True)
    node.begin("door-2", "gateway")
    listed = node.received("agent", "processes")[-1]["processes"]
    assert {peer["pid"] for peer in listed if peer["role"] == "gateway"} >= {door.peer.pid}
    node.send(agent, {"role": "workers"}, 1)
    node.send(agent, {"role": "all"}, 2)
    node.send(agent, {"pid": door.peer.pid}, 3)
    assert [frame["data"]["n"] for frame in node.received("door-1", "message")] == [3]


def test_a_stopping_node_expects_no_more_processes(node: RouterNode) -> None:
    video = node["video-1"]
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


def test_the_manager_takes_no_messages_and_an_unknown_process_is_named(node: RouterNode) -> None:
    manager = node.begin("manager", "manager")
    node.send(node["video-1"], {"pid": manager.peer.pid}, 1)
    node.send(node["video-1"], {"pid": 9999}, 2)
    assert [frame["error"] for frame in node.received("video-1")] == [
        f"process {manager.peer.pid} is the manager, which takes no messages",
        "this node has no process 9999",
    ]
