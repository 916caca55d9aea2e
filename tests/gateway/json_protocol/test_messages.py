"""The JSON protocol on a real queue server: what docs/protocol.md promises of messages, waits and held jobs."""

from __future__ import annotations

import socket
from typing import Any

from peerd import Client
from peerd.domain.lifecycle import Status
from peerd.store.connection.database import Database
from peerd.testing import eventually
from tests.gateway.gateway_thread import GatewayThread
from tests.gateway.json_protocol.conftest import JsonConnection


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
    for member in ("unique", "name"):
        assert connection.ask("add_job", job=1, **{member: "a\0"})["error"].endswith("; leave it out")
    connection.socket.sendall(
        b'{"cmd":"notify","id":[],"cmd":"add_job","job":2,"job":{ "a": 1 },"queue":7,"queue":"a","id":6}'
    )
    assert connection.receive()["id"] == 6
    assert connection.ask("get_job", queue="a")["job"] == {"a": 1}
    assert connection.ask("add_job", job=1, id=1)["ok"]
    connection.socket.sendall(b'GET / HTTP/1.1\r\n\r\n{"cmd":"get_job"}')
    assert (connection.receive()["code"], connection.receive()) == ("malformed", None)


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
    for unique_for in (3600, "forever", "unfinished"):
        add = {"job": 1, "unique": f"key {unique_for}", "unique_for": unique_for, "id": 1}
        first = connection.ask("add_job", **add)
        assert first["created"]
        connection.ask("get_job")
        assert connection.ask("add_job", **add) == first | {"created": False}
        connection.ask("notify", id=1)
        assert connection.ask("add_job", **add)["created"] == (unique_for == "unfinished")
        assert connection.ask("add_job", queue="else", **add)["created"]


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


def test_a_connection_that_holds_several_jobs_names_them(connection: JsonConnection, other: JsonConnection) -> None:
    connection.send(*({"cmd": "add_job", "job": n} for n in range(3)))
    first, second = connection.ask("get_job"), connection.ask("get_job")
    assert connection.ask("notify")["code"] == "which_job"
    assert other.ask("notify", job_id=first["job_id"])["code"] == "not_held"
    assert connection.ask("notify", job_id=first["job_id"], id=1)["ok"]
    assert connection.ask("release", id=1)["ok"]
    assert other.ask("get_job") == second


def test_a_job_whose_time_to_run_is_over_goes_back(connection: JsonConnection, other: JsonConnection) -> None:
    connection.send({"cmd": "add_job", "job": 1, "ttr": 2}, {"cmd": "get_job"})
    taken = connection.receive()
    assert taken["ttr"] == 2
    assert connection.ask("get_job", wait=5)["code"] == "deadline_soon"
    assert other.ask("get_job", wait=10) == taken
    assert connection.ask("notify", job_id=taken["job_id"])["code"] == "not_held"


def test_progress_and_a_result_are_kept(database: Database, connection: JsonConnection) -> None:
    number = connection.ask("add_job", job=1, id=1)["job_id"]
    connection.ask("get_job")
    assert connection.ask("touch", progress=0.5, note="half", id=1)["ok"]
    task = Client(database).tasks.get(number)
    assert (task.status, task.progress, task.progress_note) == (Status.WORKING, 0.5, "half")
    assert connection.ask("notify", result={"size": [1]}, id=1)["ok"]
    task = Client(database).tasks.get(number)
    assert (task.status, task.result) == (Status.DONE, '{"size": [1]}')


def test_a_failed_job_comes_again_until_its_last_attempt_or_never(
    database: Database, connection: JsonConnection
) -> None:
    tasks = Client(database).tasks
    number = connection.ask("add_job", job=1, id=1)["job_id"]
    connection.ask("get_job")
    assert connection.ask("fail", reason="no route", retry=0.2, id=1)["ok"]
    assert tasks.get(number).status is Status.FAILURE
    assert connection.ask("get_job", wait=10)["job_id"] == number
    assert connection.ask("fail", reason="gone", retry=False, id=1)["ok"]
    task = tasks.get(number)
    assert (task.status, task.error, task.attempts) == (Status.DEAD, "gone", 2)
    assert connection.ask("get_job", wait=0.05)["code"] == "no_work"
    number = connection.ask("add_job", job=1, id=1, max_attempts=2)["job_id"]
    for _ in range(2):
        assert connection.ask("get_job", wait=10)["job_id"] == number
        connection.ask("fail", retry=0, id=1)
    task = tasks.get(number)
    assert (task.status, task.error) == (Status.DEAD, "no reason given")


def test_a_job_that_was_cancelled_is_not_held_any_more(database: Database, connection: JsonConnection) -> None:
    number = connection.ask("add_job", job=1, id=1)["job_id"]
    for cmd in ("notify", "fail", "release", "touch"):
        connection.ask("get_job")
        Client(database).tasks.cancel(number)
        assert connection.ask(cmd, id=1, job_id=number)["code"] == "not_held", cmd
        Client(database).tasks.retry(number)


def test_jobs_of_both_protocols_are_the_same_jobs(gateway: GatewayThread, connection: JsonConnection) -> None:
    with gateway.connect() as beanstalk:
        connection.ask("add_job", job={"a": 1}, id=1)
        answer = beanstalk.ask(b"reserve-with-timeout 0\r\n")
        assert answer.endswith(b'{"a": 1}\r\n')
        assert beanstalk.ask(b"delete %b\r\n" % answer.split()[1]) == b"DELETED\r\n"
        for body in (b"text", b"\xff\x00", b"[1]"):
            beanstalk.put(body)
        taken = [connection.ask("get_job") for _ in range(3)]
        assert [{key: job[key] for key in job if key not in {"job_id", "queue"}} for job in taken] == [
            {"text": "text", "ttr": 60}, {"base64": "/wA=", "ttr": 60}, {"job": [1], "ttr": 60},
        ]  # fmt: skip
