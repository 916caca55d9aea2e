"""The replies of the JSON protocol, as bytes: each is one object on one line."""

from __future__ import annotations

from base64 import b64encode
from typing import Final

import msgspec

from peerd.gateway.json.messages import ErrorCode, JsonMessage, RefusedMessage
from peerd.gateway.json.parser import MAX_DEPTH, ObjectScanner

NO_WORK_TEXT: Final = "No work to do"

_encode: Final = msgspec.json.Encoder().encode
_JSON: Final = msgspec.json.Decoder(msgspec.Raw)
_LINE_ENDS_TO_SPACES: Final = bytes.maketrans(b"\r\n", b"  ")


def confirmation(message_id: int | str | None) -> bytes:
    r"""The reply to a message that was carried out; nothing if it has no id.

    >>> confirmation(7), confirmation(None)
    (b'{"id":7,"ok":true}\n', b'')
    """
    return b"" if message_id is None else b'%b"ok":true}\n' % _id(message_id)


def job_added(message_id: int | str | None, job_id: int, *, created: bool) -> bytes:
    r"""The reply to add_job; nothing if it has no id.

    >>> job_added("a", 17, created=False)
    b'{"id":"a","ok":true,"job_id":17,"created":false}\n'
    """
    if message_id is None:
        return b""
    return b'%b"ok":true,"job_id":%d,"created":%b}\n' % (_id(message_id), job_id, b"true" if created else b"false")


def job_taken(message_id: int | str | None, job_id: int, queue: str, body: bytes, ttr: int | None = None) -> bytes:
    r"""The reply to get_job: a job.

    Args:
        message_id: of get_job; None if it has none.
        job_id: number of the job.
        queue: its queue.
        body: the job, as it is stored; any bytes.
        ttr: seconds after which it is taken back; None if it is not.

    >>> job_taken(None, 17, "default", b'{"a":1}')
    b'{"job_id":17,"queue":"default","job":{"a":1}}\n'
    >>> job_taken(None, 17, "default", b'no json', ttr=60)
    b'{"job_id":17,"queue":"default","ttr":60,"text":"no json"}\n'
    """
    limit = b"" if ttr is None else b'"ttr":%d,' % ttr
    return b'%b"job_id":%d,"queue":%b,%b%b}\n' % (_id(message_id), job_id, _encode(queue), limit, _job_member(body))


def error_reply(message: JsonMessage | RefusedMessage, code: ErrorCode, problem: str) -> bytes:
    r"""The reply to a message that is refused.

    >>> from peerd.gateway.json.messages import GetJob
    >>> error_reply(GetJob(), ErrorCode.NO_WORK, NO_WORK_TEXT)
    b'{"error":"No work to do","code":"no_work","cmd":"get_job"}\n'
    """
    named = b"" if message.cmd is None else b',"cmd":%b' % _encode(_writable(message.cmd))
    return b'%b"error":%b,"code":"%b"%b}\n' % (_id(message.id), _encode(_writable(problem)), code.value.encode(), named)


def _id(message_id: int | str | None) -> bytes:
    return b"{" if message_id is None else b'{"id":%b,' % _encode(message_id)


def _job_member(body: bytes) -> bytes:
    r"""The member that holds a job: as JSON if it is JSON that every client can read, else as text, else in base64.

    >>> _job_member(b'[1,\n2]'), _job_member(b''), _job_member(b'\xff')
    (b'"job":[1, 2]', b'"text":""', b'"base64":"/w=="')
    """
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return b'"base64":"%b"' % b64encode(body)
    if _is_json(body):
        return b'"job":' + body.translate(_LINE_ENDS_TO_SPACES)  # in JSON these bytes are white space between tokens
    return b'"text":' + _encode(text)


def _is_json(body: bytes) -> bool:
    try:
        _JSON.decode(body)
    except (msgspec.DecodeError, RecursionError):
        return False
    if body.count(b"[") + body.count(b"{") < MAX_DEPTH:
        return True
    scanner = ObjectScanner()
    scanner.find_end(body)
    return scanner.deepest < MAX_DEPTH


def _writable(text: str) -> str:
    """A text without halves of surrogate pairs, which UTF-8 does not have."""
    return text.encode(errors="backslashreplace").decode()
