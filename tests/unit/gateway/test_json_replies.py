from __future__ import annotations

import base64
import json
from typing import Any

from peerd.gateway.protocols.json import replies
from peerd.gateway.protocols.json.messages import ErrorCode, RefusedMessage
from peerd.gateway.protocols.json.scanner import MAX_DEPTH

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


def test_an_id_is_repeated_and_without_one_there_is_no_confirmation() -> None:
    assert read(replies.confirmation('"\n')) == {"id": '"\n', "ok": True}
    assert read(replies.job_added(0, 5, created=True)) == {"id": 0, "ok": True, "job_id": 5, "created": True}
    assert read(replies.job_taken("", 5, "q", b"1", 60)) == {"id": "", "job_id": 5, "queue": "q", "ttr": 60, "job": 1}
    assert replies.confirmation(None) == replies.job_added(None, 5, created=True) == b""


def test_an_error_is_data() -> None:
    assert read(replies.error_reply(ErrorCode.NO_WORK, replies.NO_WORK_TEXT, "get_job")) == {
        "error": "No work to do", "code": "no_work", "cmd": "get_job",
    }  # fmt: skip
    strange = RefusedMessage(code=ErrorCode.INVALID, problem='a "\ud800" \n', cmd="\udfff", id=-1)
    assert read(replies.refusal(strange)) == {
        "id": -1, "error": 'a "\\ud800" \n', "code": "invalid", "cmd": "\\udfff",
    }  # fmt: skip
