from __future__ import annotations

from typing import Any

from tests.unit.supervision.router_node import RouterNode


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


def test_a_request_to_a_process_that_dies_is_answered_at_once_and_those_of_a_dead_one_are_dropped(
    node: RouterNode,
) -> None:
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


def test_a_request_is_dropped_after_its_timeout(node: RouterNode) -> None:
    node.send_request(node["video-1"], {"role": "agent"}, 5, timeout=2.5)
    node.advance(after=2.6)
    assert node.router._awaiting_reply, "its sender's own clock is first"
    node.advance(after=1.0)
    assert not node.router._awaiting_reply
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
