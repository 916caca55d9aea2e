from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from peerd.gateway.json import replies
from peerd.gateway.json.messages import (
    COMMANDS,
    AddJob,
    ErrorCode,
    FailJob,
    GetJob,
    NotifyDone,
    RefusedMessage,
    TouchJob,
)
from peerd.gateway.json.parser import MAX_DEPTH, MESSAGE_OVERHEAD, MessageParser

PAGE = (Path(__file__).parents[3] / "docs" / "protocol.md").read_text().split("## The Python client")[0]
SMALL = 1000


def parse(*pieces: bytes, max_job_size: int = 65535) -> list[Any]:
    parser = MessageParser(max_job_size)
    found: list[Any] = []
    for piece in pieces:
        parser.feed(piece)
        found += parser.messages()
    return found


def one(text: bytes, **more: Any) -> Any:
    [message] = parse(text, **more)
    return message


def one_by_one(data: bytes) -> Iterable[bytes]:
    return (data[place : place + 1] for place in range(len(data)))


def test_messages_are_told_apart_when_glued_and_when_split_at_every_byte() -> None:
    stream = b'{"cmd":"add_job","job":{"a":"}{\\"","b":[{}]}}{"cmd":"get_job"} \r\n\t{"cmd":"notify"}\n'
    glued = parse(stream)
    assert [type(message) for message in glued] == [AddJob, GetJob, NotifyDone]
    assert [repr(message) for message in parse(*one_by_one(stream))][1:] == [repr(message) for message in glued[1:]]
    assert bytes(parse(*one_by_one(stream))[0].job) == b'{"a":"}{\\"","b":[{}]}'
    parser = MessageParser(SMALL)
    parser.feed(b'{"cmd":"get_job"}{"cmd":"notify"}{"cmd":"touch"}')
    assert next(iter(parser.messages())) == GetJob()
    parser.feed(b'{"cmd":"fail"}')
    assert list(parser.messages()) == [NotifyDone(), TouchJob(), FailJob()], "behind the last message"


def test_a_job_keeps_its_text_and_members_come_in_any_order() -> None:
    for job in (
        b"null", b"0", b'""', b"[]", b"{}", b"-0.0", b"1e999", b"9" * 5000, b"0.1000000000000000055511151231257827",
        b'"\\\\"', b'"\\"}"', b"[ 1 ,\n 2 ]",
        b'{"a":1,"a":2,"":{}}', b'"\\u0000"', b'"\\ud83d\\ude00"', '"\U0001f600 ä \u2028"'.encode(),
    ):  # fmt: skip
        assert bytes(one(b'{"cmd": "add_job", "job": ' + job + b"}").job) == job
    message = one(b'{"id":"x","job":1,"queue":null,"delay":null,"ttr":null,"priority":null,"cmd":"add_job"}')
    assert (message.id, message.queue, message.delay, message.priority) == ("x", None, None, None)
    assert one(b'{"cmd":"get_job","queue":null,"queues":null,"wait":null}').wanted == ("default",)
    assert one(b'{"cmd":"fail","retry":null,"reason":null,"job_id":null}') == FailJob()
    assert one(b'{"cmd":"get_job","id":1,"id":2,"queue":"a","queue":"b"}') == GetJob(id=2, queue="b")
    results = (b'"result":{"a":[1,2]}', b'"result":null', b'"id":1')
    assert [one(b'{"cmd":"notify",%b}' % result).result_text for result in results] == ['{"a":[1,2]}', None, None]


def test_a_wrong_member_is_an_error_of_its_message_only() -> None:
    for members, problem in (
        (b'"cmd":"add_job"', "job"), (b'"cmd":"add_job","job":1,"prority":5', "prority"),
        (b'"cmd":"add_job","job":1,"priority":"5"', "priority"),
        (b'"cmd":"add_job","job":1,"priority":1.5', "priority"),
        (b'"cmd":"add_job","job":1,"priority":9223372036854775808', "priority"),
        (b'"cmd":"add_job","job":1,"delay":-1', "delay"), (b'"cmd":"add_job","job":1,"delay":1e999', "delay"),
        (b'"cmd":"add_job","job":1,"delay":315360000', "delay"), (b'"cmd":"add_job","job":1,"ttr":0', "ttr"),
        (b'"cmd":"add_job","job":1,"ttr":true', "ttr"), (b'"cmd":"add_job","job":1,"max_attempts":0', "max_attempts"),
        (b'"cmd":"add_job","job":1,"unique_for":"ever"', "unique_for"),
        (b'"cmd":"add_job","job":1,"queue":"no spaces"', "queue"),
        (b'"cmd":"add_job","job":1,"queue":"a\\u0000"', "queue"), (b'"cmd":"add_job","job":"\\ud800"', "surrogate"),
        (b'"cmd":"get_job","queue":""', "queue"), (b'"cmd":"get_job","queues":[]', "queues"),
        (b'"cmd":"get_job","queues":["-a"]', "queue"), (b'"cmd":"get_job","queues":["a"],"queue":"a"', "not both"),
        (b'"cmd":"get_job","wait":-0.1', "wait"), (b'"cmd":"notify","job_id":0', "job_id"),
        (b'"cmd":"notify","job_id":1e3', "job_id"), (b'"cmd":"touch","progress":1.01', "progress"),
        (b'"cmd":"touch","note":"a"', "note"), (b'"cmd":"fail","retry":true', "retry"), (b'"cmd":"auth"', "token"),
        (b'"cmd":7', "cmd"), (b'"job":1', "cmd"),
    ):  # fmt: skip
        [refused, next_one] = parse(b'{"id":7,' + members + b'}{"cmd":"get_job"}')
        assert isinstance(refused, RefusedMessage), members
        assert (refused.code, refused.id) == (ErrorCode.INVALID, 7), members
        assert problem in refused.problem
        assert next_one == GetJob()
    for text in (b'{"cmd":"get_job","%b":1}', b'{"cmd":"%b"}', b'{"cmd":"get_job","queue":"%b"}'):
        assert len(one(text % (b"x" * 5000)).problem) <= 300, "it does not quote all that was sent"


def test_an_id_that_cannot_be_repeated_is_refused_and_not_repeated() -> None:
    for id_ in (
        b"1.5", b"9007199254740993", b"-9007199254740993", b"9" * 5000, b"true", b"[]", b'"%b"' % (b"x" * 201),
        b'"\\udc00"',
    ):  # fmt: skip
        refused = one(b'{"cmd":"get_job","id":' + id_ + b"}")
        assert (refused.code, refused.id, refused.cmd) == (ErrorCode.INVALID, None, "get_job"), id_
    refused = one(b'{"cmd":"put","id":"a"}')
    assert (refused.code, refused.id, refused.cmd) == (ErrorCode.UNKNOWN_COMMAND, "a", None)
    assert all(command in refused.problem for command in COMMANDS), "it names those that are known"


GARBAGE = (
    b"GET / HTTP/1.1\r\n", b"put 0 0 60 5\r\n", b"[1]", b'"a"', b"1", b"nul", b"}", b"\x00", b"\xef\xbb\xbf{}",
    b"\x16\x03\x01", b'{"cmd":"get_job"]', b"{'cmd'", b"{cmd", b'{"a\nb', b'{"job":"a"b"}\n', b'{"cmd" "get_job"}',
    b'{"cmd":"get_job",}', b'{"cmd":"get_job","wait":NaN}', b'{"cmd":"get_job","wait":01}', b'{"cmd":"nope" 1}',
    b'{"cmd":"add_job","job":"\xff"}', b'{"cmd":"add_job","job":"\xed\xa0\x80"}', b'{"cmd":"add_job","job":"\\x"}',
    b'{"cmd":"add_job","job":[}]}', b'{"cmd":"add_job","job":"\x00"}', b'{"cmd":"add_job","job":1} {"cmd":tru}',
)  # fmt: skip


def test_what_is_no_json_object_is_one_error_after_which_nothing_is_read() -> None:
    for garbage in GARBAGE:
        for pieces in ([garbage], one_by_one(garbage)):
            *before, failed = parse(*pieces, b'{"cmd":"get_job"}' * 3)
            assert failed.code is ErrorCode.MALFORMED, garbage
            assert failed.code.closes
            assert all(isinstance(message, AddJob) for message in before)


def test_a_message_of_the_largest_size_is_taken_and_a_larger_one_is_skipped_to_its_end() -> None:
    room = SMALL + MESSAGE_OVERHEAD - len(b'{"id":7,"cmd":"add_job","job":""}')
    for size, is_taken in ((room, True), (room + 1, False), (10 * room, False)):
        text = b'{"id":7,"cmd":"add_job","job":"' + b"x" * size + b'"}'
        for pieces in ([text], one_by_one(text), [text[:5000], text[5000:-1], text[-1:]]):
            [message, next_one] = parse(*pieces, b'{"cmd":"get_job"}', max_job_size=SMALL)
            assert isinstance(message, AddJob) == is_taken
            assert message.id == 7
            assert is_taken or message.code is ErrorCode.TOO_BIG
            assert next_one == GetJob()
    for levels, is_taken in ((MAX_DEPTH - 1, True), (MAX_DEPTH, False), (30_000, False)):
        text = b'{"cmd":"add_job","id":1,"job":' + b"[" * levels + b"]" * levels + b"}"
        [message, next_one] = parse(text, b'{"cmd":"get_job"}')
        assert (isinstance(message, AddJob), message.id, next_one) == (is_taken, 1, GetJob())
        assert is_taken or message.code is ErrorCode.TOO_DEEP


def test_the_memory_of_an_unfinished_message_is_bounded() -> None:
    parser = MessageParser(SMALL)
    parser.feed(b'{"cmd":"add_job","job":"')
    for _ in range(1000):
        parser.feed(b"x" * SMALL)
        assert list(parser.messages()) == []
        assert len(parser._buffer) <= SMALL + MESSAGE_OVERHEAD
    assert parser.is_within_message
    parser.feed(b'"}')
    [skipped] = parser.messages()
    assert isinstance(skipped, RefusedMessage)
    assert skipped.code is ErrorCode.TOO_BIG
    assert not parser.is_within_message


def test_the_page_names_each_command_with_its_members_and_each_error() -> None:
    for struct in (AddJob, GetJob, NotifyDone, TouchJob, FailJob):
        assert f"`{struct.__struct_config__.tag}`" in PAGE
        for member in set(struct.__struct_fields__) - {"id"}:
            assert f"`{member}`" in PAGE
    errors = PAGE[PAGE.index("## Errors") :].split("\n## ")[0]
    described = re.findall(r"^\| `(\w+)` \|", errors, re.MULTILINE)
    assert set(described) == {code.value for code in ErrorCode}
    said_to_close = re.findall(r"^\| `(\w+)` \|.*connection is closed", errors, re.MULTILINE)
    assert set(said_to_close) == {code.value for code in ErrorCode if code.closes}
    assert set(re.findall(r"^\| `(\w+)` \|", PAGE[PAGE.index("## Messages") :], re.MULTILINE)) >= set(COMMANDS)


JSON = (b"null", b"1", b'"a"', b'{"a": [1, 2]}', b"[1,\r\n\t2]", '"\u2028ä"'.encode(), b'"\\u0000\\n"', b" {} ", b"1e5")
TEXT = (b"", b"text", b"{", b"1 2", b"nan", b"a\nb", b"\x00", b'"\\ud800"', b"[" * 9999, "ü".encode())
NO_TEXT = (b"\xff", b'"\xed\xa0\x80"', bytes(range(256)))


def read(reply: bytes) -> Any:
    assert reply.endswith(b"\n")
    assert reply.count(b"\n") == 1
    assert b"\r" not in reply
    return json.loads(reply)


def taken(body: bytes) -> Any:
    return read(replies.job_taken(None, 17, "q", body))


def test_a_job_is_given_as_json_as_text_or_in_base64() -> None:
    for body in JSON:
        assert taken(body) == {"job_id": 17, "queue": "q", "job": json.loads(body)}
    for body in TEXT:
        assert taken(body) == {"job_id": 17, "queue": "q", "text": body.decode()}
    for body in NO_TEXT:
        assert base64.b64decode(taken(body)["base64"]) == body
    for levels, member in ((MAX_DEPTH - 1, "job"), (MAX_DEPTH, "text"), (100_000, "text")):
        assert member in taken(b"[" * levels + b"]" * levels)
    assert "job" in taken(b"[" + b"[]," * 1000 + b"{}]")


def test_an_id_is_repeated_and_an_error_is_data() -> None:
    assert read(replies.confirmation('"\n')) == {"id": '"\n', "ok": True}
    assert read(replies.job_added(0, 5, created=True)) == {"id": 0, "ok": True, "job_id": 5, "created": True}
    assert read(replies.job_taken("", 5, "q", b"1", 60)) == {"id": "", "job_id": 5, "queue": "q", "ttr": 60, "job": 1}
    assert replies.confirmation(None) == replies.job_added(None, 5, created=True) == b""
    assert read(replies.error_reply(GetJob(), ErrorCode.NO_WORK, replies.NO_WORK_TEXT)) == {
        "error": "No work to do", "code": "no_work", "cmd": "get_job",
    }  # fmt: skip
    strange = RefusedMessage(code=ErrorCode.INVALID, problem='a "\ud800" \n', cmd="\udfff", id=-1)
    assert read(replies.error_reply(strange, strange.code, strange.problem)) == {
        "id": -1, "error": 'a "\\ud800" \n', "code": "invalid", "cmd": "\\udfff",
    }  # fmt: skip
