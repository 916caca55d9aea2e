"""Messages between real processes of a node, through a real master."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from peerd.supervision.control import control_client
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


def test_what_is_sent_before_the_node_is_ready_waits_for_it(node: Nodes) -> None:
    late = {**SITE, "start": ["sleep 0.5"]}
    stub_node = node({**AGENT, "start": ["early of the agent"]}, {**VIDEO, "start": ["early of video"]}, late).up()
    all_slots = ["agent", "site-1", "video-1"]
    for text in ("of the agent", "of video"):
        eventually(lambda: got(stub_node, text) == sorted([*all_slots, "agent"]))  # noqa: B023 - called at once
    first = min(fact["at"] for fact in stub_node.notes("message"))
    assert first > max(fact["at"] for fact in stub_node.notes("run")) - 0.05


def test_a_request_is_answered_or_fails_with_the_reason(shared: StubNode) -> None:
    stub_node = shared
    site = stub_node.slot("site-1")["pid"]
    assert stub_node.call_messenger("video-1", "request", site, "note", "asked") == {"value": None}
    failed = stub_node.call_messenger("video-1", "request", site, "fail")
    assert (failed["error"], failed["text"].endswith("failed there: RuntimeError: no such cache")) == (
        "RequestFailed",
        True,
    )
    unknown = stub_node.call_messenger("video-1", "request", "agent", "dance")
    assert unknown["error"] == "RequestFailed"
    assert "no handler is registered for 'dance' there" in unknown["text"]
    undeliverable = stub_node.call_messenger("video-1", "request", 1, "note")
    assert (undeliverable["error"], "this node has no process 1" in undeliverable["text"]) == ("Undeliverable", True)
    died = stub_node.call_messenger("video-1", "request", site, "die", timeout=60)
    assert (died["error"], f"site-1 (process {site}) has died" in died["text"]) == ("NoReply", True)
    blocked = stub_node.call_messenger("agent", "request", stub_node.slot("video-1")["pid"], "block", 1.0, timeout=0.1)
    assert (blocked["error"], "its 0.1 s are over" in blocked["text"]) == ("NoReply", True)
    assert stub_node.slot("video-1")["restarts"] == 0, "what fails in a handler does not taint its process"


def test_a_message_for_an_agent_that_has_died_waits_for_the_next_one(node: Nodes) -> None:
    stub_node = node(
        {**AGENT, "entry": "stub_services:waits_when_it_replaces", "peers": True}, {**VIDEO, "peers": True}
    ).up()
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
    eventually(
        lambda: len(stub_node.received("ready", "agent")) == 2,
        message="the new agent is notified that the node is ready",
    )


def test_the_agent_learns_of_workers_as_they_start_and_after_a_death_and_its_own(node: Nodes, tmp_path: Path) -> None:
    second = tmp_path / "the-second-may-start"
    stub_node = node({**AGENT, "peers": True}, VIDEO, {**VIDEO_2, "start": [f"until {second}"]}).start()

    def reported_workers() -> list[list[str]]:
        return [sorted(fact["workers"]) for fact in stub_node.notes("peers")]

    def known() -> dict[str, int]:
        workers: dict[str, int] = stub_node.notes("peers", "agent")[-1]["workers"]
        return workers

    def living() -> dict[str, int]:
        return {slot: stub_node.slot(slot)["pid"] for slot in ("video-1", "video-2")}

    eventually(lambda: reported_workers() == [[], ["video-1"]])
    second.touch()
    eventually(lambda: reported_workers() == [[], ["video-1"], ["video-1", "video-2"]] and known() == living())
    killed = stub_node.kill("video-1")
    eventually(lambda: known() == living() and killed not in known().values())
    assert ["video-2"] in reported_workers()
    eventually(lambda: len(stub_node.received("ready", "video-1")) == 2, message="the new worker is notified too")
    former = stub_node.kill("agent")
    eventually(lambda: stub_node.notes("peers")[-1]["pid"] != former and known() == living())


def test_a_leaving_process_is_addressed_only_by_its_process_id(node: Nodes, tmp_path: Path) -> None:
    done = tmp_path / "done"
    stub_node = node(AGENT, {**VIDEO, "run": ["sleep 0.3", "once taint"], "until": str(done)}).up()
    (leaving,) = eventually(lambda: stub_node.slot("video-1")["leaving"])
    eventually(lambda: stub_node.slot("video-1")["state"] == "RUNNING")
    assert delivered(stub_node.call_messenger("agent", "send_to_workers", "note", "for workers")) == 1
    for _ in range(10):
        stub_node.call_messenger("agent", "send_random", "note", "for one")
    assert delivered(stub_node.call_messenger("agent", "send_to", leaving["pid"], "note", "for you")) == 1
    eventually(lambda: got(stub_node, "for you"))
    done.touch()
    assert {fact["pid"] for fact in stub_node.notes("message") if fact["data"] == "for you"} == {leaving["pid"]}
    eventually(lambda: len(got(stub_node, "for one")) == 10)
    others = {fact["pid"] for fact in stub_node.notes("message") if fact["data"] != "for you"}
    assert others == {stub_node.slot("video-1")["pid"]}


@pytest.mark.slow
def test_a_flood_harms_neither_the_master_nor_the_others(node: Nodes) -> None:
    stub_node = node(AGENT, VIDEO, VIDEO_2, SITE).up()
    frozen = stub_node.slot("video-2")["pid"]
    before = memory_of(stub_node.pid)
    os.kill(frozen, signal.SIGSTOP)
    counts = control_client.call_agent(stub_node.run_directory, "relay", flooding(stub_node, frozen), timeout=25.0)[
        "value"
    ]
    assert counts["undeliverable"] > 0
    assert 900 <= counts["delivered"] <= 1000
    assert memory_of(stub_node.pid) - before < 16 * 1024 * 1024
    assert delivered(stub_node.call_messenger("site-1", "send_to", frozen, "note", "the others have room")) == 1
    assert stub_node.call_messenger("site-1", "request", "agent", "note", "and their say") == {"value": None}
    os.kill(frozen, signal.SIGCONT)
    eventually(lambda: len(stub_node.notes("message", "video-2")) == counts["delivered"] + 1)
    eventually(
        lambda: delivered(stub_node.call_messenger("video-1", "send_to", frozen, "note", "there is room again")) == 1
    )


def flooding(stub_node: StubNode, receiver: int) -> dict[str, Any]:
    pid = stub_node.slot("video-1")["pid"]
    return {"pid": pid, "call": "request", "args": [pid, "flood", receiver], "more": {"timeout": 20.0}}


def memory_of(pid: int) -> int:
    (line,) = (line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) * 1024


def test_malformed_messages_are_answered_and_harm_no_process(node: Nodes) -> None:
    stub_node = node(AGENT, {**VIDEO, "raw": True, "run": ["sleep 0.2", "nonsense"]}).up()
    eventually(lambda: len(stub_node.received("delivery", "video-1")) == 4)
    errors = [answer["error"] for answer in stub_node.received("delivery", "video-1")]
    assert "is none of these" in errors[0]
    assert "its `action` must be a text" in errors[1]
    assert "this node has no process 1" in errors[2]
    assert errors[3] == "malformed message: its `id` must be a number"
    (reply,) = eventually(lambda: stub_node.received("reply", "video-1"))
    assert reply["reason"] == "undeliverable"
    assert stub_node.slot("video-1")["restarts"] == 0


def test_a_node_without_an_agent_reports_it(node: Nodes) -> None:
    stub_node = node(VIDEO).up()
    with pytest.raises(control_client.CommandRefused, match="'note': this node has no agent"):
        control_client.call_agent(stub_node.run_directory, "note")
