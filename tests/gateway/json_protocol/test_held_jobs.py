"""Jobs that a JSON client holds, and how they end; jobs of the other protocol and of Python are the same."""

from __future__ import annotations

from peerd import Client
from peerd.domain.lifecycle import Status
from peerd.store.connection.database import Database
from tests.gateway.gateway_thread import GatewayThread
from tests.gateway.json_protocol.json_connection import JsonConnection

# ---------------------------------------------------------------- held jobs


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
    assert (task.status, task.result, task.deadline_at) == (Status.DONE, '{"size": [1]}', None)
    assert connection.ask("notify", job_id=number)["code"] == "not_held"


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
    assert (task.status, task.error, task.attempts, task.deadline_at) == (Status.DEAD, "gone", 2, None)
    assert [attempt.error for attempt in tasks.attempts(number)] == ["no route", "gone"]
    assert connection.ask("get_job", wait=0.05)["code"] == "no_work"
    number = connection.ask("add_job", job=1, id=1, max_attempts=2)["job_id"]
    for _ in range(2):
        assert connection.ask("get_job", wait=10)["job_id"] == number
        connection.ask("fail", retry=0, id=1)
    task = tasks.get(number)
    assert (task.status, task.error) == (Status.DEAD, "no reason given")


def test_a_job_that_was_cancelled_is_not_held_any_more(database: Database, connection: JsonConnection) -> None:
    number = connection.ask("add_job", job=1, id=1)["job_id"]
    for end in (
        {"cmd": "notify"},
        {"cmd": "notify", "result": 1},
        {"cmd": "fail"},
        {"cmd": "release"},
        {"cmd": "touch"},
    ):
        connection.ask("get_job")
        Client(database).tasks.cancel(number)
        connection.send({**end, "id": 1, "job_id": number})
        assert connection.receive()["code"] == "not_held", end
        Client(database).tasks.retry(number)


# ---------------------------------------------------------------- between worlds


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


def test_a_task_of_python_is_handled_by_a_client_and_its_result_comes_back(
    database: Database, connection: JsonConnection
) -> None:
    python = Client(database)
    task = python.enqueue("video", name="transcode", body={"source": "a.mp4"})
    taken = connection.ask("get_job", queue="video", wait=10)
    assert (taken["job"], taken["ttr"]) == ({"source": "a.mp4"}, 60)
    assert connection.ask("notify", result={"frames": 5}, id=1)["ok"]
    assert task.result(timeout=10) == {"frames": 5}
