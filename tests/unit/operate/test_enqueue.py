from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
import sqlalchemy as sa

from peerd.domain.errors import IdempotencyKeyReused, InvalidFilter, InvalidTask, NodeNotFound, SchemaMissing
from peerd.domain.lifecycle import Status
from peerd.domain.outcome import Failed
from peerd.domain.task import Call
from peerd.operate.client import Client
from peerd.operate.request import new_task
from tests.unit.operate.claiming_process import ClaimingProcess

CALL = Call("video", "transcode", '{"source":"a.mp4"}')


def test_an_enqueued_task_is_in_the_table(client: Client, holder: ClaimingProcess) -> None:
    job = client.enqueue(CALL, priority=20, timeout="2h", max_attempts=5, trace_context="00-ab-cd-01", node="video-1")
    task = client.tasks.get(job.id)
    assert (task.queue, task.name, task.json, task.node_id) == (
        "video", "transcode", {"source": "a.mp4"}, holder.node_id,
    )  # fmt: skip
    assert (task.priority, task.timeout, task.max_attempts, task.trace_context) == (20, 7200.0, 5, "00-ab-cd-01")
    assert (task.status, job.created, job.status) == (Status.PENDING, True, Status.PENDING)
    assert client.tasks.get(client.enqueue("legacy", bytes=b"\x00\xff").id).body_bytes == b"\x00\xff"


@pytest.mark.one_database
def test_an_enqueue_with_an_earlier_key_writes_nothing_again(client: Client, holder: ClaimingProcess) -> None:
    first, again = (client.enqueue("mail", idempotency_key="a", priority=7) for _ in range(2))
    assert (first.id, first.created) == (again.id, again.created)
    assert client.enqueue("later", start_in="1h").status is Status.SCHEDULED
    both = [client.enqueue_many(["mail", "video"], idempotency_key="b") for _ in range(2)]
    assert [job.id for job in both[0]] == [job.id for job in both[1]]
    assert client.tasks.counts()[Status.PENDING] == 3
    with pytest.raises(IdempotencyKeyReused):
        client.enqueue("mail", idempotency_key="a", priority=8)
    with pytest.raises(InvalidFilter, match="idempotency_key"):
        client.enqueue_many(["mail"], idempotency_key="")
    unique = client.enqueue("once", unique="a", unique_for="1h")
    holder.run(Failed(error="no", retry_in=None), "once")
    assert client.enqueue("once", unique="a", unique_for="1h").id == unique.id, "also when it has ended"


def test_a_server_without_tables_is_told_and_an_embedded_database_gets_them_at_the_first_call(database: str) -> None:
    with Client(database) as client:
        with client.database.engine.connect() as connection, pytest.raises(SchemaMissing, match="run `peerd migrate`"):
            client.enqueue_in(connection, CALL)
        if client.database.name != "sqlite":
            with pytest.raises(SchemaMissing, match="peerd migrate"):
                client.enqueue(CALL)
        else:
            assert client.enqueue(CALL).status is Status.PENDING


def test_a_refused_task_leaves_the_callers_transaction_and_a_plain_one_costs_one_statement(client: Client) -> None:
    statements: list[str] = []
    with client.database.engine.begin() as connection:
        with pytest.raises(InvalidTask):
            client.enqueue_in(connection, "no spaces")
        with pytest.raises(NodeNotFound):
            client.enqueue_in(connection, CALL, node="nowhere")
        sa.event.listen(connection, "before_cursor_execute", lambda _c, _u, statement, *_: statements.append(statement))
        kept = client.enqueue_in(connection, CALL)
    assert len(statements) == 1, statements
    assert [task.id for task in client.tasks.list()] == [kept.id]
    with pytest.raises(TypeError, match="neither a Connection nor a Session"):
        client.enqueue_in(client.database.engine, CALL)  # type: ignore[arg-type]


def test_a_body_is_json_a_text_stays_bytes_are_binary_and_options_are_texts_with_units_or_none() -> None:
    options: dict[str, Any] = dict.fromkeys(("priority", "start_at", "node", "unique", "unique_for", "timeout", "body"))
    assert new_task("legacy", **options) == new_task("legacy")
    task = new_task("legacy", start_in="10m", finish_in="20m", timeout="2h", unique="a", unique_for="1d")
    assert (task.start_in, task.finish_in, task.timeout, task.unique_for) == (600.0, 1200.0, 7200.0, 86400.0)
    assert new_task("legacy", body="a").body == '"a"'
    assert new_task("legacy", text="a").body == "a"
    binary = new_task("legacy", bytes=b"\xff\x00")
    assert (binary.body, binary.body_bytes) == (None, b"\xff\x00")


WRONG: tuple[tuple[dict[str, Any], str, str], ...] = (
    ({"body": object()}, "body", "JSON"), ({"body": float("nan")}, "body", "holds inf or nan"),
    ({"body": 1, "text": "1"}, "text", "not both"), ({"bytes": "text"}, "bytes", "not bytes"),
    ({"text": b"bytes"}, "text", "not text"), ({"priority": "high"}, "priority", "whole number"),
    ({"priority": True}, "priority", "whole number"), ({"max_attempts": 0}, "max_attempts", "from 1"),
    ({"start_in": "soon"}, "start_in", "not a duration"), ({"start_at": "tomorrow"}, "start_at", "start_in"),
    ({"start_at": datetime(2026, 1, 1)}, "start_at", "time zone"),  # noqa: DTZ001 - the naive one is the point
    ({"start_at": datetime(2026, 1, 1, tzinfo=UTC), "start_in": 1}, "start_at", "not both"),
    ({"unique_for": "1h"}, "unique_for", "unique"), ({"text": "a\x00b"}, "body", "NUL"),
    ({"unique": "a", "unique_for": "a while"}, "unique_for", "not a duration"), ({"node": 7}, "node", "not text"),
)  # fmt: skip


def test_a_wrong_option_is_refused_with_its_name() -> None:
    for options, field, words in WRONG:
        with pytest.raises(InvalidTask, match=words) as refused:
            new_task("legacy", **options)
        assert refused.value.field == field, options
    for option in ("name", "body", "text", "bytes"):
        options = {option: b"x" if option == "bytes" else "x"}
        with pytest.raises(InvalidTask, match="brings its own"):
            new_task(CALL, **options)
    options = {"prio": 3}
    with pytest.raises(TypeError, match="'prio'"):
        new_task("legacy", **options)
    handler: Any = print
    with pytest.raises(TypeError, match="with_args"):
        new_task(handler)
