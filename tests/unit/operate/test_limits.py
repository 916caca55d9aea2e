from __future__ import annotations

from typing import Any

import pytest

from peerd.domain.call import Call
from peerd.domain.errors import InvalidFilter, InvalidLimit
from peerd.domain.limit import Limit, Rate
from peerd.operate.client import Client
from peerd.operate.request import new_task, new_tasks

pytestmark = pytest.mark.one_database
KEYED = Call("uploads", "receive", '{"customer":"acme"}', limit_key="acme")


def test_limits_are_set_listed_and_removed(client: Client) -> None:
    limits = client.limits
    assert limits.set("uploads", running=8) == Limit(queue="uploads", running=8)
    assert limits.set("uploads", each_key=True, running=3).each_key
    assert limits.set("uploads", key="acme", running=5, rate="100/1m").rate == Rate(100, 60.0)
    limits.set("api", rate=Rate(5, 1.0))
    assert [(one.queue, one.key) for one in limits.list()] == [
        ("api", ""),
        *[("uploads", key) for key in ("", "*", "acme")],
    ]
    assert [limits.remove("uploads", key="acme") for _ in range(2)] == [True, False]
    assert [limits.remove("uploads", each_key=True), limits.remove("uploads")] == [True, True]
    assert (limits.list("uploads"), len(limits.list("api"))) == ([], 1)


WRONG: tuple[tuple[dict[str, Any], str, str], ...] = (
    ({}, "running", "give running, rate or both"),
    ({"key": "acme"}, "running", "give running, rate or both"),
    ({"running": 1, "key": "acme", "each_key": True}, "key", "not both"),
    ({"running": 1, "key": ""}, "key", "leave it out to limit the queue as a whole"),
    ({"running": 1, "key": "*"}, "key", "each_key limits each key"),
    ({"running": 1, "key": "a "}, "key", "ends with a space"),
    ({"running": "3"}, "running", "not a number of tasks at once"),
    ({"rate": "fast"}, "rate", "write starts/period"),
    ({"rate": 5}, "rate", "write starts/period"),
)


def test_what_is_wrong_is_refused_with_the_field_and_nothing_is_written(client: Client) -> None:
    for given, field, message in WRONG:
        with pytest.raises(InvalidLimit, match=message) as refused:
            client.limits.set("uploads", **given)
        assert refused.value.field == field, given
    assert client.limits.list() == []
    with pytest.raises(InvalidLimit, match="queue: 'no spaces'"):
        client.limits.remove("no spaces")
    with pytest.raises(InvalidLimit, match="not both"):
        client.limits.remove("uploads", key="a", each_key=True)
    with pytest.raises(InvalidFilter, match="7 is not text"):
        client.limits.list(7)  # type: ignore[arg-type]


def test_the_key_of_a_call_is_used_and_an_option_overrides_it() -> None:
    assert new_task(KEYED).limit_key == "acme"
    assert new_task(KEYED, limit_key=None).limit_key == "acme"
    assert new_task(KEYED, limit_key="other").limit_key == "other"
    assert new_task("uploads", limit_key="acme").limit_key == "acme"
    bulk = new_tasks([KEYED, "uploads", Call("uploads", "receive", "{}")])
    assert [task.limit_key for task in bulk] == ["acme", None, None]
    assert [task.limit_key for task in new_tasks([KEYED, "uploads"], limit_key="k")] == ["k", "k"]


async def test_each_way_of_enqueuing_carries_the_key(client: Client) -> None:
    jobs = [client.enqueue(KEYED), *client.enqueue_many([KEYED, "uploads"]), client.enqueue(KEYED, limit_key="b")]
    with client.database.engine.begin() as connection:
        jobs.append(client.enqueue_in(connection, KEYED, unique="once"))
    jobs += [await client.aio.enqueue(KEYED), *(await client.aio.enqueue_many([KEYED]))]
    assert [client.tasks.get(job.id).limit_key for job in jobs] == ["acme", "acme", None, "b", "acme", "acme", "acme"]
