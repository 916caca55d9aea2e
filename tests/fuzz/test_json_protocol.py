"""The JSON protocol: a stream means the same however it is split, garbage is one clear error, and others are served."""

from __future__ import annotations

import json
import logging
import socket
from collections.abc import Iterator
from contextlib import closing, suppress
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from peerd.config.settings import GatewaySettings
from peerd.gateway.json import replies
from peerd.gateway.json.messages import COMMANDS, Message, RefusedMessage
from peerd.gateway.json.parser import MESSAGE_OVERHEAD, MessageParser
from peerd.store.connection.database import Database
from tests.fuzz import values
from tests.fuzz.conftest import searched
from tests.gateway.gateway_thread import GatewayThread
from tests.support.servers import DatabaseFactory

MEMBERS = (
    "id", "job", "queue", "queues", "wait", "priority", "delay", "ttr", "unique", "unique_for", "job_id", "progress",
    "reason", "retry", "token", "result", "else",
)  # fmt: skip
SENSIBLE = st.sampled_from([1, 5, 0.5, False, None, "q", "forever", ["a", "b"], "\x00", 2**53])
SPACE = st.text(" \t\r\n", max_size=3).map(str.encode)
MAX_JOB = 300


@st.composite
def messages(draw: st.DrawFn) -> bytes:
    members = draw(st.dictionaries(st.sampled_from(MEMBERS), SENSIBLE | values.json, max_size=4))
    if draw(st.booleans()):
        members = {"cmd": draw(st.sampled_from(COMMANDS)), **members}
    if draw(st.integers(0, 9)) == 0:
        members["job"] = "x" * draw(st.integers(MAX_JOB, 2 * MESSAGE_OVERHEAD))
    return json.dumps(members, ensure_ascii=draw(st.booleans()), indent=draw(st.sampled_from([None, 1]))).encode(
        errors="surrogatepass"
    )


streams = st.lists(messages() | SPACE, max_size=8).map(b"".join)


def parse(data: bytes, cuts: list[int]) -> list[Message | RefusedMessage]:
    parser = MessageParser(MAX_JOB)
    found: list[Message | RefusedMessage] = []
    for start, end in pairwise([0, *sorted(cut for cut in cuts if cut < len(data)), len(data)]):
        parser.feed(data[start:end])
        found += parser.messages()
    return found


def comparable(found: list[Message | RefusedMessage]) -> list[Any]:
    return [one if isinstance(one, RefusedMessage) else msgspec.json.encode(one) for one in found]


@searched(120)
@given(data=streams | st.binary(max_size=200), cuts=st.lists(st.integers(0, 20_000), max_size=30))
@example(data=b'{"a":"\\"}', cuts=[7])
@example(data=b'{"job":"' + b"x" * 20_000 + b'\\"}', cuts=[20_009])
def test_a_stream_has_the_same_messages_however_it_is_split(data: bytes, cuts: list[int]) -> None:
    whole = comparable(parse(data, []))
    assert comparable(parse(data, cuts)) == whole
    assert comparable(parse(data[:2000], list(range(2000)))) == comparable(parse(data[:2000], []))


@searched(120)
@given(st.binary(max_size=60) | values.json.map(lambda value: json.dumps(value).encode()))
def test_every_body_comes_back_in_one_line(body: bytes) -> None:
    line = replies.job_taken(1, 2, "q", body)
    assert line.count(b"\n") == 1
    json.loads(line)


@pytest.fixture(scope="module")
def gateway(module_factory: DatabaseFactory) -> Iterator[GatewayThread]:
    options = GatewaySettings(protocols=("json",), max_job_size=300)
    with closing(Database(module_factory("sqlite"))) as database, GatewayThread(database, options) as gateway:
        yield gateway


def converse(gateway: GatewayThread, pieces: list[bytes]) -> list[Any]:
    with socket.create_connection(gateway.address, 20) as connection, connection.makefile("rb") as lines:
        with suppress(OSError):  # it was closed already, because of what has been sent
            for piece in pieces:
                connection.sendall(piece)
            connection.shutdown(socket.SHUT_WR)
        try:
            return [json.loads(line) for line in lines]
        except ConnectionResetError:
            return []


@searched(50)
@given(data=streams | st.binary(max_size=100), cut=st.integers(0, 500))
def test_any_stream_is_answered_and_ends(
    gateway: GatewayThread, caplog: pytest.LogCaptureFixture, data: bytes, cut: int
) -> None:
    for reply in converse(gateway, [data[:cut], data[cut:]]):
        assert isinstance(reply, dict)
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


def test_a_gateway_that_was_fuzzed_holds_nothing_any_more(gateway: GatewayThread) -> None:
    assert converse(gateway, [b'{"cmd":"get_job","queue":"else"}'])[0]["code"] == "no_work"
    state = gateway.state
    assert gateway.call(
        lambda: (state.ready.waiters.total, sum(len(one.reservations) for one in state.reserving.clients))
    ) == (0, 0)
    assert gateway.state.buffered == 0
