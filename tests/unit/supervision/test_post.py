"""The post with values: a directory that the test writes, and channels whose other ends the test reads."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import count
from typing import Any

import pytest

from peerd.runtime.addressing import LARGEST, UNANSWERED, Peer
from peerd.runtime.frames import Decoder
from peerd.supervision.addresses import Addressee, Directory
from peerd.supervision.channel import Channel
from peerd.supervision.inboxes import Inboxes
from peerd.supervision.post import WAIT_WITHIN, Post

KINDS = frozenset({("agent", "agent"), ("video", "worker"), ("site", "web"), ("manager", "manager")})


class World:
    """A node whose processes the test begins and ends; `now` is the test's."""

    def __init__(self) -> None:
        self.now = 100.0
        self.present: list[Addressee] = []
        self.expected: set[tuple[str, str]] = set()
        self.ends: dict[str, socket.socket] = {}
        self._decoders: dict[str, Decoder] = {}
        self._pids = count(101)
        self.chosen_from: list[str] = []
        self.post = Post(self._directory, self._choose)

    def _directory(self) -> Directory:
        return Directory(tuple(self.present), frozenset(self.expected), KINDS)

    def _choose(self, among: Sequence[Addressee]) -> Addressee:
        self.chosen_from = [one.peer.slot for one in among]
        return among[-1]

    def begin(self, slot: str, role: str = "worker", **more: bool) -> Addressee:
        masters, its = socket.socketpair()
        its.setblocking(False)
        if slot in self.ends:
            self.ends[slot].close()
        self.ends[slot], self._decoders[slot] = its, Decoder()
        kind = slot if role in ("agent", "manager") else slot.rpartition("-")[0]
        one = Addressee(object(), Peer(next(self._pids), slot, kind, role), Channel(masters), **more)
        self.present.append(one)
        self.look()
        return one

    def change(self, one: Addressee, *, ready: bool = True, leaving: bool = False) -> Addressee:
        changed = replace(one, ready=ready, leaving=leaving)
        self.present[self.present.index(one)] = changed
        self.look()
        return changed

    def end(self, one: Addressee) -> None:
        self.present.remove(one)
        assert isinstance(one.link, Channel)
        one.link.close()
        self.look()

    def look(self, after: float = 0.0) -> None:
        self.now += after
        self.post.look(self.now)

    def send(self, sender: Addressee, to: object, number: int = 1, /, **more: Any) -> None:
        message = {"type": "message", "id": number, "to": to, "action": "hello", "data": {"n": number}} | more
        self.post.take(sender, message, self.now)

    def ask(self, sender: Addressee, to: object, number: int = 1, /, **more: Any) -> None:
        self.send(sender, to, number, **({"request": True, "timeout": 10.0} | more))

    def heard(self, slot: str, *types: str) -> list[dict[str, Any]]:
        frames: list[dict[str, Any]] = []
        try:
            while data := self.ends[slot].recv(65536):
                frames += self._decoders[slot].feed(data)
                for one in self.present:
                    if one.peer.slot == slot and isinstance(one.link, Channel):
                        one.link.flush()
        except BlockingIOError:
            pass
        return [frame for frame in frames if frame["type"] in (types or ("message", "delivery", "reply"))]


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    yield made
    for one in made.present:
        if isinstance(one.link, Channel):
            one.link.close()
    for end in made.ends.values():
        end.close()


@pytest.fixture
def node(world: World) -> World:
    """An agent and three workers, one of them a web process; open."""
    for slot, role in (("agent", "agent"), ("video-1", "worker"), ("video-2", "worker"), ("site-1", "web")):
        world.begin(slot, role)
    world.post.open(world.now)
    return world


def by_name(world: World, slot: str) -> Addressee:
    return next(one for one in world.present if one.peer.slot == slot)


@pytest.mark.parametrize(
    ("to", "receivers"),
    [
        ({"role": "all"}, {"agent", "video-1", "video-2", "site-1"}),
        ({"role": "workers", "kind": None}, {"video-1", "video-2", "site-1"}),
        ({"role": "workers"}, {"video-1", "video-2", "site-1"}),
        ({"role": "workers", "kind": "video"}, {"video-1", "video-2"}),
        ({"role": "random", "kind": "video"}, {"video-2"}),
        ({"role": "agent"}, {"agent"}),
        ({"pid": 104}, {"site-1"}),
    ],
)
def test_a_message_reaches_whom_it_is_for_and_its_sender_is_told(node: World, to: object, receivers: set[str]) -> None:
    sender = by_name(node, "video-1")
    node.send(sender, to, 7)
    heard = {slot: node.heard(slot) for slot in node.ends}
    assert {"type": "delivery", "id": 7, "delivered": len(receivers), "error": None} in heard["video-1"]
    got = {slot: frame for slot, frames in heard.items() for frame in frames if frame["type"] == "message"}
    assert set(got) == receivers
    for frame in got.values():
        assert (frame["action"], frame["data"], frame["request"]) == ("hello", {"n": 7}, False)
        assert frame["from"] == sender.peer.to_json()


def test_everybody_is_told_who_is_there_after_each_change_and_only_then(node: World) -> None:
    names = [[peer["slot"] for peer in one["processes"]] for one in node.heard("agent", "processes")]
    assert names == [
        ["agent"],
        ["agent", "video-1"],
        ["agent", "video-1", "video-2"],
        ["agent", "video-1", "video-2", "site-1"],
    ]
    node.look()
    node.begin("video-3", ready=False)
    assert node.heard("agent", "processes") == [], "one that boots is not there yet"
    node.end(by_name(node, "agent"))
    (told,) = node.heard("site-1", "processes")[-1:]
    assert [peer["slot"] for peer in told["processes"]] == ["video-1", "video-2", "site-1"]
    node.change(by_name(node, "video-3"), ready=True)
    assert [peer["slot"] for peer in node.heard("video-3", "processes")[-1]["processes"]][-1] == "video-3"


def test_what_is_sent_before_the_node_is_ready_waits_and_keeps_its_order(world: World) -> None:
    agent = world.begin("agent", "agent")
    world.send(agent, {"role": "workers"}, 1)
    world.send(agent, {"role": "agent"}, 2)
    world.begin("video-1")
    world.look(after=1000.0)
    assert world.heard("agent") == world.heard("video-1") == []
    world.post.open(world.now)
    world.send(agent, {"role": "workers"}, 3)
    assert [frame["data"]["n"] for frame in world.heard("video-1")] == [1, 3]
    assert [frame["data"]["n"] for frame in world.heard("agent", "message")] == [2]


def test_what_is_for_an_agent_that_is_being_replaced_waits_for_the_next_one(node: World) -> None:
    video = by_name(node, "video-1")
    node.expected.add(("agent", "agent"))
    node.end(by_name(node, "agent"))
    node.send(video, {"role": "agent"}, 1)
    node.send(video, {"role": "all"}, 2)
    assert [frame["delivered"] for frame in node.heard("video-1", "delivery")] == [3], "what is for all does not wait"
    new = node.begin("agent", "agent", ready=False)
    assert node.heard("video-1") == []
    node.change(new, ready=True)
    assert [frame["data"]["n"] for frame in node.heard("agent")] == [1]
    assert node.heard("video-1") == [{"type": "delivery", "id": 1, "delivered": 1, "error": None}]


def test_what_waits_too_long_is_undeliverable(node: World) -> None:
    video = by_name(node, "video-1")
    node.expected.add(("agent", "agent"))
    node.end(by_name(node, "agent"))
    node.send(video, {"role": "agent"}, 1)
    node.ask(video, {"role": "agent"}, 2)
    assert node.post.due_at <= node.now + WAIT_WITHIN + 1
    node.look(after=12.0)
    assert node.heard("video-1") == [
        {"type": "reply", "id": 2, "error": "its time is over", "reason": "late"},
    ]
    node.look(after=WAIT_WITHIN)
    (told,) = node.heard("video-1")
    assert (told["delivered"], told["error"]) == (0, "nobody was there to take it for 30 s")
    assert node.post.due_at == float("inf")


def test_a_process_that_boots_gets_what_is_for_it_when_it_is_ready(node: World) -> None:
    booting = node.begin("video-3", ready=False)
    node.send(by_name(node, "agent"), {"pid": booting.peer.pid})
    assert node.heard("video-3") == []
    node.change(booting, ready=True)
    assert [frame["action"] for frame in node.heard("video-3")] == ["hello"]


def test_a_kind_whose_only_process_is_replaced_is_waited_for(node: World) -> None:
    node.expected.add(("site", "web"))
    node.end(by_name(node, "site-1"))
    node.send(by_name(node, "agent"), {"role": "random", "kind": "site"})
    node.begin("site-1", "web")
    assert [frame["action"] for frame in node.heard("site-1")] == ["hello"]


def test_who_leaves_gets_nothing_that_is_for_all_but_can_be_written_to(node: World) -> None:
    leaving = node.change(by_name(node, "video-2"), leaving=True)
    agent = by_name(node, "agent")
    node.send(agent, {"role": "workers"}, 1)
    node.send(agent, {"role": "random", "kind": "video"}, 2)
    assert node.chosen_from == ["video-1"]
    node.send(agent, {"pid": leaving.peer.pid}, 3)
    assert [frame["data"]["n"] for frame in node.heard("video-2")] == [3]
    node.ask(leaving, {"role": "agent"}, 4)
    (request,) = [frame for frame in node.heard("agent") if frame["type"] == "message"]
    node.post.take_reply(agent, {"type": "reply", "id": request["id"], "data": "yes"})
    assert node.heard("video-2") == [{"type": "reply", "id": 4, "data": "yes"}]


def test_a_node_that_stops_waits_for_nobody(node: World) -> None:
    video = by_name(node, "video-1")
    node.expected.add(("agent", "agent"))
    node.end(by_name(node, "agent"))
    node.send(video, {"role": "agent"}, 1)
    node.post.close()
    node.ask(video, {"role": "agent"}, 2)
    node.send(video, {"role": "workers", "kind": "site"}, 3)
    assert node.heard("video-1") == [
        {"type": "delivery", "id": 1, "delivered": 0, "error": "the node stops"},
        {"type": "reply", "id": 2, "error": "the node stops", "reason": "undeliverable"},
        {"type": "delivery", "id": 3, "delivered": 1, "error": None},
    ]


# -------------------------------------------------------------------- requests


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


# -------------------------------------------------------------------- floods


def test_a_flood_fills_the_senders_own_share_and_leaves_the_others_theirs(node: World) -> None:
    flooder, other, site = by_name(node, "video-1"), by_name(node, "video-2"), by_name(node, "site-1")
    to = {"pid": site.peer.pid}
    for number in range(UNANSWERED + 50):
        node.send(flooder, to, number)
        node.heard("site-1")  # it is read, and not taken
    told = node.heard("video-1")
    assert sum(frame["delivered"] for frame in told) == UNANSWERED
    assert {frame["error"] for frame in told if not frame["delivered"]} == {
        "too much waits already to be taken by site-1 (process 104)"
    }
    node.send(other, to)
    assert node.heard("video-2")[0]["delivered"] == 1
    node.post.taken(site, {"type": "taken", "count": UNANSWERED})
    node.send(flooder, to)
    assert node.heard("video-1")[0]["delivered"] == 1


def test_a_process_that_does_not_read_costs_the_master_no_more_than_its_room(node: World) -> None:
    site = by_name(node, "site-1")
    senders = [by_name(node, slot) for slot in ("agent", "video-1", "video-2")]
    for number in range(60):
        for sender in senders:
            node.send(sender, {"pid": site.peer.pid}, number, data="x" * 250_000)
    assert isinstance(site.link, Channel)
    assert site.link.has_unsent()
    assert len(site.link._outgoing) < 7 * 1024 * 1024
    assert site.link.send({"type": "stop"}), "there is room for what the master has to say"


def test_what_reaches_only_some_is_told_as_such(node: World) -> None:
    sender = by_name(node, "agent")
    for number in range(UNANSWERED):
        node.send(sender, {"role": "workers", "kind": "site"}, number)
        node.heard("site-1")
    node.heard("agent")
    node.send(sender, {"role": "workers"}, 1)
    (told,) = node.heard("agent")
    assert (told["delivered"], told["error"]) == (2, "too much waits already to be taken by site-1 (process 104)")


def test_so_much_and_no_more_waits_of_each_sender(world: World) -> None:
    world.begin("agent", "agent")
    flooder = world.begin("video-1")
    other = world.begin("video-2")
    for number in range(UNANSWERED + 1):
        world.send(flooder, {"role": "agent"}, number)
    (told,) = world.heard("video-1")
    assert told["delivered"] == 0
    assert "messages of its sender wait already" in told["error"]
    world.send(other, {"role": "agent"})
    assert world.heard("video-2") == []
    world.end(flooder)
    world.post.open(world.now)
    assert len(world.heard("agent")) == 1, "what the dead have sent and is not delivered is forgotten"


def test_requests_that_are_open_are_bounded_too(node: World) -> None:
    video = by_name(node, "video-1")
    for number in range(UNANSWERED + 1):
        node.ask(video, {"role": "agent"}, number)
    (told,) = node.heard("video-1")
    assert told["reason"] == "undeliverable"
    assert len(node.post._asked) == UNANSWERED


def test_a_share_is_given_back_in_the_order_in_which_messages_were_handed_over() -> None:
    inboxes = Inboxes(most=2, most_bytes=100)
    for sender, size in (("a", 60), ("b", 10), ("a", 30)):
        inboxes.put("x", sender, size)
    assert [inboxes.has_room("x", sender, 20) for sender in "abc"] == [False, True, True]
    inboxes.taken("x", 2)
    assert inboxes.has_room("x", "a", 70)
    assert not inboxes.has_room("x", "a", 71)
    inboxes.taken("x", 99)
    inboxes.taken("x", -1)
    inboxes.forget("x")
    assert inboxes._shares == inboxes._inboxes == {}


# -------------------------------------------------------------------- what is hostile


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"to": {"role": "boss"}}, "a message is for all, workers, agent, random, or a process id"),
        ({"to": {"role": ["all"]}}, "is none of these"),
        ({"to": {"role": "agent", "kind": "video"}}, "is none of these"),
        ({"to": {"pid": True}}, "is none of these"),
        ({"to": {"pid": 1.5}}, "is none of these"),
        ({"to": {"pid": 101, "role": "all"}}, "is none of these"),
        ({"to": "agent"}, "is none of these"),
        ({"to": None}, "is none of these"),
        ({"to": {"role": "workers", "kind": "k" * 10_000}}, "is none of these"),
        ({"to": {"role": "workers", "kind": "vidoe"}}, "no workers of the kind 'vidoe'; it has site, video"),
        ({"to": {"pid": 10**400}}, "this node has no process 1000"),
        ({"to": {"pid": -1}}, "this node has no process -1"),
        ({"action": None}, "its `action` must be a text of 1 to 200 characters"),
        ({"action": ""}, "its `action` must be"),
        ({"action": "a" * 201}, "its `action` must be"),
        ({"action": "\ud800"}, "cannot be said in JSON"),
        ({"data": float("nan")}, "cannot be said in JSON"),
        ({"data": "x" * (LARGEST + 4000)}, f"bytes, and {LARGEST} are allowed"),
        ({"request": "yes"}, "its `request` must be true or false"),
        ({"request": True, "timeout": 1.0, "to": {"role": "all"}}, "a request is for one process"),
        ({"request": True}, "its `timeout` must be seconds"),
        ({"request": True, "timeout": float("inf")}, "its `timeout` must be seconds"),
        ({"request": True, "timeout": True}, "its `timeout` must be seconds"),
    ],
)
def test_what_is_no_message_is_answered_with_what_is_wrong(node: World, more: dict[str, Any], says: str) -> None:
    node.send(by_name(node, "video-1"), {"role": "agent"}, 7, **more)
    (told,) = node.heard("video-1")
    assert told["id"] == 7
    assert says in told["error"]
    assert node.heard("agent") == []


@pytest.mark.parametrize("number", [None, "x" * 900_000, True, 1.5, 2**70, [1]])
def test_a_number_that_is_none_is_not_sent_back(node: World, number: Any) -> None:
    node.send(by_name(node, "video-1"), {"role": "agent"}, id=number)
    assert node.heard("video-1") == [
        {"type": "delivery", "id": None, "delivered": 0, "error": "this is no message: its `id` must be a number"}
    ]


def test_replies_and_counts_that_make_no_sense_change_nothing(node: World) -> None:
    agent = by_name(node, "agent")
    node.ask(by_name(node, "video-1"), {"role": "agent"}, 5)
    (request,) = node.heard("agent")
    for number in (None, "1", [request["id"]], True, request["id"] + 1):
        node.post.take_reply(agent, {"type": "reply", "id": number, "data": 1})
    for taken in (None, "1", -5, 10**400, [3]):
        node.post.taken(agent, {"type": "taken", "count": taken})
    assert node.heard("video-1") == []
    node.post.take_reply(agent, {"type": "reply", "id": request["id"], "data": "x" * (LARGEST + 4000)})
    (reply,) = node.heard("video-1")
    assert (reply["reason"], reply["id"]) == ("handler", 5)
    assert f"{LARGEST} are allowed" in reply["error"]


def test_the_manager_takes_no_messages_and_an_unknown_process_is_named(node: World) -> None:
    manager = node.begin("manager", "manager")
    node.send(by_name(node, "video-1"), {"pid": manager.peer.pid}, 1)
    node.send(by_name(node, "video-1"), {"pid": 9999}, 2)
    assert [frame["error"] for frame in node.heard("video-1")] == [
        f"process {manager.peer.pid} is the manager, which takes no messages",
        "this node has no process 9999",
    ]
