"""Requests by post: each is answered once, by whom was asked or by the post itself."""

from __future__ import annotations

from typing import Any

from tests.unit.supervision.router_node import World, by_name


def test_a_reply_goes_to_who_has_asked_once_and_only_from_who_was_asked(node: World) -> None:
    video, agent, site = by_name(node, "video-1"), by_name(node, "agent"), by_name(node, "site-1")
    node.ask(video, {"role": "agent"}, 5)
    (request,) = node.heard("agent")
    assert request["request"] is True
    assert node.heard("video-1") == [], "a request is answered with its reply"
    for _ in range(2):
        node.post.take_reply(site, {"type": "reply", "id": request["id"], "data": "forged"})
        node.post.take_reply(agent, {"type": "reply", "id": request["id"], "data": [1]})
    assert node.heard("video-1") == [{"type": "reply", "id": 5, "data": [1]}]


def test_the_error_of_a_handler_is_the_reply(node: World) -> None:
    agent = by_name(node, "agent")
    node.ask(by_name(node, "video-1"), {"role": "agent"}, 5)
    (request,) = node.heard("agent")
    node.post.take_reply(agent, {"type": "reply", "id": request["id"], "error": "ValueError: \ud800"})
    assert node.heard("video-1") == [{"type": "reply", "id": 5, "error": "ValueError: ?", "reason": "handler"}]


def test_a_request_to_a_process_that_dies_is_answered_at_once(node: World) -> None:
    site = by_name(node, "site-1")
    node.ask(by_name(node, "video-1"), {"pid": site.peer.pid}, 5)
    node.end(site)
    (reply,) = node.heard("video-1")
    assert (reply["id"], reply["reason"]) == (5, "died")
    assert reply["error"] == "site-1 (process 104) has died before it answered"


def test_what_a_dead_process_has_asked_is_forgotten(node: World) -> None:
    video, agent = by_name(node, "video-1"), by_name(node, "agent")
    node.ask(video, {"role": "agent"}, 5)
    (request,) = node.heard("agent")
    node.end(video)
    node.post.take_reply(agent, {"type": "reply", "id": request["id"], "data": 1})
    assert node.post._held == {}


def test_a_request_is_forgotten_when_nobody_waits_for_it_any_more(node: World) -> None:
    node.ask(by_name(node, "video-1"), {"role": "agent"}, 5, timeout=2.5)
    node.look(after=2.6)
    assert node.post._asked, "its sender's own clock is first"
    node.look(after=1.0)
    assert not node.post._asked
    assert node.post._held == {}


def test_somebody_at_the_control_socket_can_ask_the_agent(node: World) -> None:
    answers: list[Any] = []
    agent = by_name(node, "agent")
    node.post.call_agent("schedules", {"a": 1}, 5.0, answers.append, node.now)
    (request,) = node.heard("agent")
    assert (request["action"], request["data"], request["from"]["role"]) == ("schedules", {"a": 1}, "control")
    node.post.take_reply(agent, {"type": "reply", "id": request["id"], "data": ["x"]})
    node.post.call_agent("schedules", None, 5.0, answers.append, node.now)
    node.look(after=6.1)
    node.post.call_agent("schedules", None, "soon", answers.append, node.now)
    node.end(agent)
    node.post.call_agent("schedules", None, 5.0, answers.append, node.now)
    assert answers == [
        {"data": ["x"]},
        {"error": "'schedules': its time is over"},
        {"error": "'schedules': this is no message: its `timeout` must be seconds, more than 0 and at most 86400"},
        {"error": "'schedules': the agent stops"},
    ]
