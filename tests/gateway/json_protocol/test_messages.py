"""The JSON protocol on a real queue server: what docs/protocol.md promises of messages, replies, queues and waits."""

from __future__ import annotations

import socket
from typing import Any

from peerd.testing import eventually
from tests.gateway.gateway_thread import GatewayThread
from tests.gateway.json_protocol.json_connection import JsonConnection

# ---------------------------------------------------------------- the original's client


def test_the_simplest_client_gets_what_it_put_in_order_and_only_get_job_is_answered(connection: JsonConnection) -> None:
    connection.send(
        *({"cmd": "add_job", "job": {"n": n}} for n in range(3)), *([{"cmd": "get_job"}, {"cmd": "notify"}] * 4)
    )
    assert [connection.receive()["job"] for _ in range(3)] == [{"n": 0}, {"n": 1}, {"n": 2}]
    assert connection.receive() == {"error": "No work to do", "code": "no_work", "cmd": "get_job"}
    assert connection.receive()["code"] == "not_held"


def test_a_lost_connection_gives_its_jobs_back_into_their_places(
    gateway: GatewayThread, connection: JsonConnection
) -> None:
    for n in range(3):
        assert connection.ask("add_job", job=n, id=n)["ok"]
    with JsonConnection(gateway) as lost:
        assert [lost.ask("get_job")["job"] for _ in range(2)] == [0, 1]
    eventually(lambda: gateway.state.connections == 1)
    assert [connection.ask("get_job")["job"] for _ in range(3)] == [0, 1, 2]


# ---------------------------------------------------------------- replies


def test_a_mistake_costs_its_message_only_and_what_is_no_message_the_connection(connection: JsonConnection) -> None:
    mistakes: list[tuple[dict[str, Any], str]] = [
        ({"cmd": "add_job", "job": 1, "unique": "x" * 300}, "invalid"),
        ({"cmd": "add_job", "job": "x" * 65_536}, "too_big"),
        ({"cmd": "put"}, "unknown_command"),
        ({"cmd": "notify", "job_id": 1}, "not_held"),
        ({"cmd": "fail"}, "not_held"),
    ]
    for message, code in mistakes:
        connection.send({"id": 5, **message})
        reply = connection.receive()
        assert (reply["id"], reply["code"]) == (5, code)
    assert connection.ask("add_job", job=1, id=1)["ok"]
    connection.socket.sendall(b'GET / HTTP/1.1\r\n\r\n{"cmd":"get_job"}')
    assert (connection.receive()["code"], connection.receive()) == ("malformed", None)


# ---------------------------------------------------------------- queues, priority, delay, uniqueness


def test_queues_are_apart_and_get_job_may_name_several(connection: JsonConnection) -> None:
    for queue, job, priority in (("a", 1, 5), ("b", 2, 7), ("default", 3, 9), ("a", 4, 6)):
        connection.send({"cmd": "add_job", "job": job, "queue": queue, "priority": priority})
    assert connection.ask("get_job", queue="c")["code"] == "no_work"
    taken = [connection.ask("get_job", queues=["a", "b"]) for _ in range(3)]
    assert [(job["queue"], job["job"]) for job in taken] == [("b", 2), ("a", 4), ("a", 1)]
    assert connection.ask("get_job")["job"] == 3


def test_a_delayed_job_comes_when_its_time_has_come(connection: JsonConnection) -> None:
    connection.send({"cmd": "add_job", "job": "later", "delay": 1}, {"cmd": "add_job", "job": "now"})
    assert connection.ask("get_job")["job"] == "now"
    assert connection.ask("notify", id=1)["ok"]
    assert connection.ask("get_job", wait=10)["job"] == "later"
    assert connection.ask("release", delay=100, id=1)["ok"]
    assert connection.ask("get_job")["code"] == "no_work"


def test_a_unique_job_is_added_once(connection: JsonConnection) -> None:
    for unique_for in ("unfinished", "forever", 3600):
        add = {"job": 1, "unique": f"key {unique_for}", "unique_for": unique_for, "id": 1}
        first = connection.ask("add_job", **add)
        assert first["created"]
        assert connection.ask("add_job", **add) == first | {"created": False}
        connection.ask("get_job")
        assert not connection.ask("add_job", **add)["created"]
        connection.ask("notify", id=1)
        again = connection.ask("add_job", **add)["created"]
        assert again == (unique_for == "unfinished")
        assert connection.ask("add_job", queue="else", **add)["created"]
        if again:
            connection.send({"cmd": "get_job"}, {"cmd": "notify"})
            connection.receive()


# ---------------------------------------------------------------- waiting


def test_a_get_job_waits_and_others_are_answered_meanwhile(connection: JsonConnection, other: JsonConnection) -> None:
    connection.send({"cmd": "add_job", "job": "mine"}, {"cmd": "get_job"}, {"cmd": "get_job", "wait": 20, "id": "w"})
    assert connection.receive()["job"] == "mine"
    assert connection.ask("notify", id="n") == {"id": "n", "ok": True}
    assert connection.ask("add_job", job=1, queue="else", id="a")["ok"]
    other.send({"cmd": "add_job", "job": "theirs"})
    assert connection.receive()["job"] == "theirs"


def test_get_jobs_are_answered_in_their_order(connection: JsonConnection, other: JsonConnection) -> None:
    connection.send(
        {"cmd": "get_job", "wait": 20, "id": 1}, {"cmd": "get_job", "id": 2, "queue": "b"},
        {"cmd": "get_job", "wait": 20, "id": 3},
    )  # fmt: skip
    connection.ask("add_job", job="for b", queue="b", id=0)
    other.send({"cmd": "add_job", "job": "first"}, {"cmd": "add_job", "job": "second"})
    replies = [connection.receive() for _ in range(3)]
    assert [(reply["id"], reply["job"]) for reply in replies] == [(1, "first"), (2, "for b"), (3, "second")]


def test_too_many_get_jobs_are_refused(connection: JsonConnection) -> None:
    connection.send(*({"cmd": "get_job", "wait": 20, "id": number} for number in range(101)))
    reply = connection.receive()
    assert (reply["id"], reply["code"]) == (100, "too_many_waiting")
    connection.send(*({"cmd": "add_job", "job": number} for number in range(100)))
    assert [connection.receive()["job"] for _ in range(100)] == list(range(100))


def test_a_client_that_sends_no_more_gets_its_replies(gateway: GatewayThread, connection: JsonConnection) -> None:
    assert connection.ask("add_job", job=1, id=1)["ok"]
    with JsonConnection(gateway) as half:
        half.send({"cmd": "get_job"}, {"cmd": "notify"}, {"cmd": "get_job", "wait": 20})
        half.send({"cmd": "add_job", "job": 2, "queue": "other"})  # not for the get_job that waits
        half.socket.shutdown(socket.SHUT_WR)
        assert half.receive()["job"] == 1
        assert half.receive()["code"] == "no_work"
        assert half.receive() is None
    assert connection.ask("get_job", queue="other")["job"] == 2
