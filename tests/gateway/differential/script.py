"""Scripts of commands over several connections: values that can be printed, kept and replayed.

In the bytes that a script sends, ``<#n>`` stands for the id of the n-th job that was put, counted from 0, and
``<z*500>`` for 500 times z.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

NO_SUCH_JOB: Final = 999_999_999


@dataclass(frozen=True, slots=True)
class Send:
    """Bytes on a connection, which is opened if it is not open, in several packets if they are cut at `cuts`.

    Attributes:
        part: "half" of what the next step of this connection, its "rest", completes; else a whole, by "send".
    """

    connection: int
    data: bytes
    cuts: tuple[int, ...] = ()
    part: str = "send"


@dataclass(frozen=True, slots=True)
class Close:
    """The end of a connection, without a word."""

    connection: int


@dataclass(frozen=True, slots=True)
class Wait:
    """Time that passes; in seconds."""

    seconds: float


Step = Send | Close | Wait
Script = tuple[Step, ...]


def from_text(text: str) -> Script:
    r"""The script whose steps were printed, one on a line.

    >>> from_text("Send(0, b'reserve\\r\\n', (3,))\nWait(1.5)\n\nClose(0)")
    (Send(connection=0, data=b'reserve\r\n', cuts=(3,), part='send'), Wait(seconds=1.5), Close(connection=0))
    """
    names = {kind.__name__: kind for kind in (Send, Close, Wait)}
    return tuple(eval(line, names) for line in text.splitlines() if line.strip())


def is_sound(script: Sequence[Step]) -> bool:
    r"""Whether each half is completed, on its connection, by the rest that follows, and no rest stands alone.

    >>> is_sound((Send(0, b"stats", part="half"), Close(1), Send(0, b"-job 1\r\n", part="rest")))
    True
    >>> is_sound((Send(0, b"stats", part="half"), Close(0)))
    False
    """
    halves: set[int] = set()
    for step in script:
        if isinstance(step, Wait):
            continue
        part = step.part if isinstance(step, Send) else ""
        if (part == "rest") != (step.connection in halves):
            return False
        halves.discard(step.connection)
        if part == "half":
            halves.add(step.connection)
    return not halves


def filled(data: bytes, ids: Sequence[int]) -> bytes:
    r"""The bytes that are sent to a server that has given these ids; a job that was not put has an id that no job has.

    >>> filled(b"delete <#1>\r\nbury <#7> 0\r\n<z*5>", [4, 9])
    b'delete 9\r\nbury 999999999 0\r\nzzzzz'
    """

    def id_of(found: re.Match[bytes]) -> bytes:
        number = int(found[1])
        return b"%d" % (ids[number] if number < len(ids) else NO_SUCH_JOB)

    return re.sub(rb"<(\w)\*(\d+)>", lambda found: found[1] * int(found[2]), re.sub(rb"<#(\d+)>", id_of, data))
