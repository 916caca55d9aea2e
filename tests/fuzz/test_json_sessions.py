"""Connections of the JSON protocol: whatever a client sends, the gateway answers it and serves the others."""

from __future__ import annotations

import json
import logging
import socket
from collections.abc import Iterator
from contextlib import closing, suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peerd.gateway.process_state import GatewayOptions
from peerd.store.connection.database import Database
from tests.fuzz.conftest import searched
from tests.fuzz.test_json_protocol import streams
from tests.gateway.gateway_thread import GatewayThread
from tests.support.servers import DatabaseFactory

QUEUES = st.sampled_from(["a", "b"])
JOB_IDS = st.integers(1, 6)
COMMON: dict[str, st.SearchStrategy[Any]] = {"id": st.integers(0, 9)}


def message(cmd: str, required: dict[str, Any] | None = None, **optional: st.SearchStrategy[Any]) -> Any:
    fixed = {"cmd": st.just(cmd), **(required or {})}
    return st.fixed_dictionaries(fixed, optional={**COMMON, **optional})


SENSIBLE = st.one_of(
    message(
        "add_job", {"job": st.integers(0, 9)}, queue=QUEUES, priority=st.integers(0, 2), unique=QUEUES,
        delay=st.sampled_from([0, 60]), unique_for=st.sampled_from(["forever", "unfinished", 60]), ttr=st.just(60),
    ),
    message("get_job", queue=QUEUES, wait=st.sampled_from([0, 0.001])),
    message("get_job", queues=st.lists(QUEUES, min_size=1, max_size=3), wait=st.sampled_from([0, 0.001])),
    message("notify", job_id=JOB_IDS, result=st.none() | st.just({"a": 1})),
    message("touch", job_id=JOB_IDS, progress=st.floats(0, 1)),
    message("fail", job_id=JOB_IDS, retry=st.sampled_from([False, None, 0, 60])),
    message("release", job_id=JOB_IDS, delay=st.sampled_from([0, 60])),
    message("auth", {"token": st.just("")}),
)  # fmt: skip


@pytest.fixture(scope="module")
def gateway(module_factory: DatabaseFactory) -> Iterator[GatewayThread]:
    options = GatewayOptions(protocols=("json",), max_job_size=300)
    with closing(Database(module_factory("sqlite"))) as database, GatewayThread(database, options) as gateway:
        yield gateway


def converse(gateway: GatewayThread, pieces: list[bytes]) -> list[Any]:
    """Send it all, and no more; the replies until the gateway has closed the connection."""
    with socket.create_connection(gateway.address, 20) as connection, connection.makefile("rb") as lines:
        with suppress(OSError):  # it was closed already, because of what has been sent
            for piece in pieces:
                connection.sendall(piece)
            connection.shutdown(socket.SHUT_WR)
        try:
            return [json.loads(line) for line in lines]
        except ConnectionResetError:
            return []


@searched(60)
@given(data=streams | st.binary(max_size=100), cut=st.integers(0, 500))
def test_any_stream_is_answered_and_ends(
    gateway: GatewayThread, caplog: pytest.LogCaptureFixture, data: bytes, cut: int
) -> None:
    for reply in converse(gateway, [data[:cut], data[cut:]]):
        assert isinstance(reply, dict)
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


@searched(120)
@given(st.lists(SENSIBLE, max_size=12))
def test_each_get_job_is_answered_and_each_id_is_repeated(
    gateway: GatewayThread, caplog: pytest.LogCaptureFixture, messages: list[dict[str, Any]]
) -> None:
    replies = converse(gateway, [json.dumps(one).encode() for one in messages])
    gets = [one for one in messages if one["cmd"] == "get_job"]
    answers = [one for one in replies if "queue" in one or one.get("cmd") == "get_job"]
    assert [one.get("id") for one in answers] == [one.get("id") for one in gets]
    others = [one["id"] for one in messages if one["cmd"] != "get_job" and "id" in one]
    assert [one["id"] for one in replies if one not in answers and "id" in one] == others
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


def test_a_gateway_that_was_fuzzed_holds_nothing_any_more(gateway: GatewayThread) -> None:
    assert converse(gateway, [b'{"cmd":"get_job","queue":"else"}'])[0]["code"] == "no_work"
    assert gateway.call(
        lambda: (gateway.engine.waiting, sum(len(one.reservations) for one in gateway.engine._clients))
    ) == (0, 0)
    assert gateway.state.buffered == 0
