"""`peerd limits`."""

from __future__ import annotations

from peerd.domain.lifecycle import Status
from peerd.operate.client import Client
from peerd.testing import insert_task
from tests.cli.conftest import Peerd


def test_limits_are_set_listed_and_removed(peerd: Peerd, client: Client) -> None:
    assert peerd("limits", "list").lines == ["no queue has limits"]
    expected = [
        peerd("limits", "set", "uploads", "--running", "8", "--rate", "1000/h").out,
        peerd("limits", "set", "uploads", "--each-key", "--running", "2").out,
        peerd("limits", "set", "uploads", "--key", "acme", "--rate", "1/s").out,
        peerd("limits", "set", "mail", "--running", "0").out,
    ]
    assert expected == [
        "uploads: at most 8 at once, at most 1,000 starts in 1h\n",
        "each key of uploads: at most 2 at once\n",
        "key acme of uploads: at most 1 start in 1s\n",
        "mail: stopped\n",
    ]
    for key in ("acme", "b", "b", None):
        insert_task(client.database, Status.WORKING, queue="uploads", limit_key=key)
    head, *rows = peerd("limits", "list").lines
    assert head.split() == ["queue", "key", "running", "starts", "full", "keys"]
    expected = [" ".join(row.split()) for row in rows]
    assert expected == [
        "mail all tasks 0 of 0 – –",
        "uploads all tasks 4 of 8 0 of 1,000 in 1h –",
        "uploads each key 2 – 1",
        "uploads acme 1 0 of 1 in 1s –",
    ]
    assert [" ".join(row.split()) for row in peerd("limits", "list", "mail").lines[1:]] == expected[:1]
    assert peerd("limits", "list", "video").lines == ["video has no limits"]
    assert peerd("limits", "remove", "uploads", "--key", "acme").out == "key acme of uploads is no longer limited\n"
    assert peerd("limits", "remove", "uploads", "--key", "acme").out == "key acme of uploads had no limit\n"
    assert peerd("limits", "remove", "uploads", "--each-key").out == "each key of uploads is no longer limited\n"
    assert peerd("limits", "remove", "uploads").out == "uploads is no longer limited\n"
    assert [limit.queue for limit in client.limits.list()] == ["mail"]


def test_limits_are_printed_as_json(peerd: Peerd, client: Client) -> None:
    assert peerd("limits", "list", "--json").json == []
    set_one = peerd("limits", "set", "uploads", "--each-key", "--running", "2", "--rate", "5/s", "--json").json
    assert set_one == {"queue": "uploads", "key": "*", "running": 2, "rate": "5/1s"}
    set_two = peerd("limits", "set", "uploads", "--key", "a", "--running", "2", "--json").json
    assert set_two == {"queue": "uploads", "key": "a", "running": 2, "rate": None}
    insert_task(client.database, Status.WORKING, queue="uploads", limit_key="a")
    assert peerd("limits", "list", "uploads", "--json").json == [
        {
            "queue": "uploads", "key": "*", "running": 2, "starts": 5, "period": 1.0,
            "running_now": None, "starts_now": None, "full_keys": 0,
        },
        {
            "queue": "uploads", "key": "a", "running": 2, "starts": None, "period": None,
            "running_now": 1, "starts_now": None, "full_keys": None,
        },
    ]  # fmt: skip
    removed = [peerd("limits", "remove", "uploads", "--each-key", "--json").json["removed"] for _ in range(2)]
    assert removed == [True, False]
    assert peerd("limits", "remove", "uploads", "--key", "a", "--json").json == {
        "queue": "uploads",
        "key": "a",
        "removed": True,
    }


INVALID = (
    (("uploads",), "running: give running, rate or both; to take a limit away, remove it"),
    (("no spaces", "--running", "1"), "queue: 'no spaces' is not"),
    (("uploads", "--running", "-1"), "running: -1 is not a number of tasks at once from 0"),
    (("uploads", "--rate", "fast"), "rate: 'fast' is not a rate: write starts/period"),
    (("uploads", "--rate", "5/0s"), "rate: 0.0 s is not a period"),
    (("uploads", "--running", "1", "--key", "*"), "--key * is no key of a task: --each-key limits each key"),
    (("uploads", "--running", "1", "--key", ""), "key: '' is no key of a task"),
    (("uploads", "--running", "1", "--key", "a "), "key: 'a ' ends with a space"),
    (
        ("uploads", "--running", "1", "--key", "a", "--each-key"),
        "two limits at once: give --key or --each-key, not both",
    ),
)


def test_invalid_values_are_refused_and_nothing_is_written(peerd: Peerd, client: Client) -> None:
    for words, message in INVALID:
        assert message in peerd("limits", "set", *words, "--json", status=2).error["message"], words
    assert client.limits.list() == []


def test_the_key_of_a_task_is_shown(peerd: Peerd, client: Client) -> None:
    job = client.enqueue("uploads", limit_key="acme")
    client.enqueue("uploads")
    assert "limit key  acme" in peerd("tasks", "show", str(job.id)).out
    assert "limit key" not in peerd("tasks", "show", str(job.id + 1)).out
    assert peerd("tasks", "show", str(job.id), "--json").json["limit_key"] == "acme"
