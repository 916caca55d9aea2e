"""Every reply of beanstalkd's protocol as bytes: constants, and functions for those that carry values."""

from __future__ import annotations

from typing import Final

# errors that any command may be answered with
OUT_OF_MEMORY: Final = b"OUT_OF_MEMORY\r\n"
INTERNAL_ERROR: Final = b"INTERNAL_ERROR\r\n"
BAD_FORMAT: Final = b"BAD_FORMAT\r\n"
UNKNOWN_COMMAND: Final = b"UNKNOWN_COMMAND\r\n"

# put
EXPECTED_CRLF: Final = b"EXPECTED_CRLF\r\n"
JOB_TOO_BIG: Final = b"JOB_TOO_BIG\r\n"
DRAINING: Final = b"DRAINING\r\n"

# commands on jobs and tubes
NOT_FOUND: Final = b"NOT_FOUND\r\n"
DEADLINE_SOON: Final = b"DEADLINE_SOON\r\n"
TIMED_OUT: Final = b"TIMED_OUT\r\n"
DELETED: Final = b"DELETED\r\n"
RELEASED: Final = b"RELEASED\r\n"
BURIED: Final = b"BURIED\r\n"
TOUCHED: Final = b"TOUCHED\r\n"
NOT_IGNORED: Final = b"NOT_IGNORED\r\n"
KICKED: Final = b"KICKED\r\n"
PAUSED: Final = b"PAUSED\r\n"

# auth, which beanstalkd does not have
AUTHORIZED: Final = b"AUTHORIZED\r\n"
UNAUTHORIZED: Final = b"UNAUTHORIZED\r\n"


def inserted(job_id: int) -> bytes:
    r"""The reply to a put.

    >>> inserted(7)
    b'INSERTED 7\r\n'
    """
    return b"INSERTED %d\r\n" % job_id


def reserved(job_id: int, body: bytes) -> bytes:
    r"""The reply to a reserve.

    >>> reserved(7, b"body")
    b'RESERVED 7 4\r\nbody\r\n'
    """
    return b"RESERVED %d %d\r\n%b\r\n" % (job_id, len(body), body)


def found(job_id: int, body: bytes) -> bytes:
    r"""The reply to a peek.

    >>> found(7, b"body")
    b'FOUND 7 4\r\nbody\r\n'
    """
    return b"FOUND %d %d\r\n%b\r\n" % (job_id, len(body), body)


def using(tube: str) -> bytes:
    r"""The reply to use and list-tube-used.

    >>> using("default")
    b'USING default\r\n'
    """
    return b"USING %b\r\n" % tube.encode()


def watching(count: int) -> bytes:
    r"""The reply to watch and ignore: how many tubes are watched.

    >>> watching(2)
    b'WATCHING 2\r\n'
    """
    return b"WATCHING %d\r\n" % count


def kicked(count: int) -> bytes:
    r"""The reply to kick: how many jobs have become ready. The reply to kick-job is `KICKED`.

    >>> kicked(2)
    b'KICKED 2\r\n'
    """
    return b"KICKED %d\r\n" % count


def ok(data: bytes) -> bytes:
    r"""The reply that carries the YAML of `statistics`.

    >>> ok(b"---\n- default\n")
    b'OK 14\r\n---\n- default\n\r\n'
    """
    return b"OK %d\r\n%b\r\n" % (len(data), data)
