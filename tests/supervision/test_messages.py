"""Messages between real processes of a node, through a real master."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest

from peerd.supervision import control_client
from tests.supervision.conftest import Nodes
from tests.supervision.nodes import AGENT, StubNode, eventually

VIDEO: dict[str, Any] = {"name": "video-1"}
VIDEO_2: dict[str, Any] = {"name": "video-2"}
SITE: dict[str, Any] = {"name": "site-1", "role": "web"}
ALL_PROCESSES = ["agent", "site-1", "video-1", "video-2"]


def got(stub_node: StubNode, data: object) -> list[str]:
    """The slots that have got it, sorted, as often as each has."""
    return sorted(fact["slot"] for fact in stub_node.notes("message") if fact["data"] == data)


def delivered(answer: dict[str, Any]) -> int:
    return int(answer["value"])


@pytest.fixture(scope="module")
def shared(module_node: Nodes) -> StubNode:
    return module_node(AGENT, VIDEO, VIDEO_2, SITE).up()


def test_messages_reach_their_recipients(shared: StubNode) -> None:
    for sender, call, args, more, recipients in (
        ("video-1", "broadcast", ["to all"], {}, ALL_PROCESSES),
        ("agent", "send_to_workers", ["to workers"], {}, ["site-1", "video-1", "video-2"]),
        ("site-1", "send_to_workers", ["to video"], {"kind": "video"}, ["video-1", "video-2"]),
        ("site-1", "send_to_agent", ["to the agent"], {}, ["agent"]),
        ("video-2", "send_random", ["to one"], {"kind": "site"}, ["site-1"]),
    ):
        assert delivered(shared.call_messenger(sender, call, "note", *args, **more)) == len(recipients)
        eventually(lambda: got(shared, args[0]) == recipients)  # noqa: B023 - at once
    for _ in range(20):
        shared.call_messenger("agent", "send_random", "note", "random")
    eventually(lambda: len(got(shared, "random")) == 20)
    assert len(set(got(shared, "random"))) > 1, "it is not always the same"

    slots = ["agent", "site-1", "video-1"]
    pairs = {(sender, f"for {receiver}", receiver) for sender in slots for receiver in slots}
    for sender, text, receiver in pairs:
        assert delivered(shared.call_messenger(sender, "send_to", shared.slot(receiver)["pid"], "note", text)) == 1

    def came() -> set[tuple[str, str, str]]:
        return {(fact["sender"], fact["data"], fact["slot"]) for fact in shared.notes("message")}

    eventually(lambda: pairs <= came())
    assert len([fact for fact in shared.notes("message") if fact["data"].startswith("for ")]) == 9


def test_a_request_is_answered_or_fails_with_the_reason(shared: StubNode) -> None:
    stub_node = shared
    site = stub_node.slot("site-1")["pid"]
    assert stub_node.call_messenger("video-1", "request", site, "note", "asked") == {"value": None}
    for sender, args, more, error, text in (
        ("video-1", (site, "fail"), {}, "RequestFailed", "failed there: RuntimeError: no such cache"),
        ("video-1", ("agent", "dance"), {}, "RequestFailed", "no handler is registered for 'dance' there"),
        ("video-1", (1, "note"), {}, "Undeliverable", "this node has no process 1"),
        ("video-1", (site, "die"), {"timeout": 60}, "NoReply", f"site-1 (process {site}) has died"),
        ("agent", (stub_node.slot("video-1")["pid"], "block", 1.0), {"timeout": 0.1}, "NoReply", "its 0.1 s are over"),
    ):
        answer = stub_node.call_messenger(sender, "request", *args, **more)
        assert (answer["error"], text in answer["text"]) == (error, True), answer
    assert stub_node.slot("video-1")["restarts"] == 0, "what fails in a handler does not taint its process"


def test_a_message_for_an_agent_that_has_died_waits_for_the_next_one(node: Nodes) -> None:
    stub_node = node({**AGENT, "replace": ["wait 2"], "peers": True}, {**VIDEO, "peers": True}).up()
    agent = stub_node.slot("agent")["pid"]
    with contextlib.suppress(control_client.CommandRefused):  # the agent may have died before it could answer
        stub_node.call_messenger("agent", "send_to", stub_node.slot("video-1")["pid"], "bereave")
    eventually(lambda: stub_node.slot("agent")["pid"] != agent)
    assert (
        control_client.call_agent(stub_node.run_directory, "note", "sent over the control socket", timeout=60) is None
    )
    (bereaved,) = eventually(lambda: stub_node.notes("bereaved"))
    assert bereaved["delivered"] == 1
    eventually(lambda: got(stub_node, "are you there?") == ["agent"])
    (message,) = (fact for fact in stub_node.notes("message") if fact["data"] == "are you there?")
    first, second = (fact["pid"] for fact in stub_node.notes("start", "agent"))
    assert message["pid"] == second
    agents = [fact["agent"] for fact in stub_node.notes("peers", "video-1")]
    assert [pid for pid, before in zip(agents, [0, *agents], strict=False) if pid != before] == [first, None, second]
    eventually(lambda: len(stub_node.received("ready", "agent")) == 2)


def test_a_node_without_an_agent_reports_it(node: Nodes) -> None:
    stub_node = node(VIDEO).up()
    with pytest.raises(control_client.CommandRefused, match="'note': this node has no agent"):
        control_client.call_agent(stub_node.run_directory, "note")
