"""The JSON protocol: a stream means the same however it is split, and garbage is one clear error."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import msgspec
from hypothesis import example, given
from hypothesis import strategies as st

from peerd.gateway.protocols.json import replies
from peerd.gateway.protocols.json.messages import COMMANDS, ErrorCode, Message, RefusedMessage
from peerd.gateway.protocols.json.parser import MESSAGE_OVERHEAD, MessageParser
from tests.fuzz import values
from tests.fuzz.conftest import searched

MEMBERS = (
    "id", "job", "queue", "queues", "wait", "priority", "delay", "ttr", "unique", "unique_for", "job_id", "progress",
    "reason", "retry", "token", "result", "else",
)  # fmt: skip
SENSIBLE = st.sampled_from([1, 5, 0.5, False, None, "q", "forever", ["a", "b"], "\x00", 2**53])
SPACE = st.text(" \t\r\n", max_size=3).map(str.encode)
MAX_JOB = 300


@st.composite
def messages(draw: st.DrawFn) -> bytes:
    """An object with the members of messages, right or wrong."""
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


def is_text(data: bytes) -> bool:
    return data == data.decode(errors="replace").encode()


def comparable(found: list[Message | RefusedMessage]) -> list[Any]:
    return [one if isinstance(one, RefusedMessage) else msgspec.json.encode(one) for one in found]


@searched(300)
@given(data=streams | st.binary(max_size=200), cuts=st.lists(st.integers(0, 20_000), max_size=30))
@example(data=b'{"a":"\\"}', cuts=[7])
@example(data=b'{"job":"' + b"x" * 20_000 + b'\\"}', cuts=[20_009])
def test_a_stream_has_the_same_messages_however_it_is_split(data: bytes, cuts: list[int]) -> None:
    whole = comparable(parse(data, []))
    assert comparable(parse(data, cuts)) == whole
    assert comparable(parse(data[:2000], list(range(2000)))) == comparable(parse(data[:2000], []))


@searched(300)
@given(data=streams, garbage=st.binary(max_size=20), place=st.integers(0, 3000))
def test_garbage_is_at_most_one_error_and_the_last(data: bytes, garbage: bytes, place: int) -> None:
    found = parse(data[:place] + garbage + data[place:], [place])
    failed = [one for one in found if isinstance(one, RefusedMessage) and one.code is ErrorCode.MALFORMED]
    assert failed == [] or (len(failed) == 1 and found[-1] is failed[0])
    for one in found:
        if isinstance(one, RefusedMessage):
            line = replies.refusal(one)
            assert line.count(b"\n") == 1
            assert len(line) < 4000
            assert json.loads(line)["code"] == one.code.value


@searched(300)
@given(st.lists(messages(), max_size=5))
def test_the_end_of_each_object_is_found_where_it_is(sent: list[bytes]) -> None:
    found = parse(b" ".join(sent), [])
    malformed = [place for place, one in enumerate(found) if isinstance(one, RefusedMessage) and one.code.closes]
    if malformed:
        [place] = malformed
        assert place == len(found) - 1
        text = sent[place]  # Python writes what is no JSON, and half of a surrogate pair is no UTF-8
        assert b"NaN" in text or b"Infinity" in text or not is_text(text)
    else:
        assert len(found) == len(sent)


@searched(200)
@given(st.binary(max_size=60) | values.json.map(lambda value: json.dumps(value).encode()))
def test_every_body_comes_back_in_one_line(body: bytes) -> None:
    line = replies.job_taken(1, 2, "q", body)
    assert line.count(b"\n") == 1
    json.loads(line)
