"""Scripts of commands over several connections: values, and a text that can be read, kept and replayed.

In the bytes that a script sends, ``<#n>`` stands for the id of the n-th job that was put, counted from 0, and
``<z*500>`` for 500 times z.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

NO_SUCH_JOB: Final = 999_999_999
_REFERENCE: Final = re.compile(rb"<#(\d+)>")
_REPEATED: Final = re.compile(rb"<(\w)\*(\d+)>")


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

    def __str__(self) -> str:
        cuts = f" cut {' '.join(map(str, self.cuts))}" if self.cuts else ""
        return f"{self.connection} {self.part} {self.data!r}{cuts}"


@dataclass(frozen=True, slots=True)
class Close:
    """The end of a connection, without a word."""

    connection: int

    def __str__(self) -> str:
        return f"{self.connection} close"


@dataclass(frozen=True, slots=True)
class Wait:
    """Time that passes; in seconds."""

    seconds: float

    def __str__(self) -> str:
        return f"- wait {self.seconds:g}"


Step = Send | Close | Wait
Script = tuple[Step, ...]


def to_text(script: Sequence[Step]) -> str:
    r"""A script as text, a line for each step.

    >>> print(to_text([Send(0, b"put 0 0 60 1\r\nx\r\n", (4, 9)), Wait(1.5), Send(1, b"delete <#0>\r\n"), Close(0)]))
    0 send b'put 0 0 60 1\r\nx\r\n' cut 4 9
    - wait 1.5
    1 send b'delete <#0>\r\n'
    0 close
    """
    return "\n".join(map(str, script))


def from_text(text: str) -> Script:
    r"""The script that `to_text` has written.

    >>> from_text("0 send b'reserve\\r\\n' cut 3\n- wait 1.5\n\n0 close")
    (Send(connection=0, data=b'reserve\r\n', cuts=(3,), part='send'), Wait(seconds=1.5), Close(connection=0))
    """
    return tuple(_step(line.strip()) for line in text.splitlines() if line.strip())


def _step(line: str) -> Step:
    who, what, *rest = line.split(" ", 2)
    if what == "wait":
        return Wait(float(rest[0]))
    if what == "close":
        return Close(int(who))
    data, _, cuts = rest[0].rpartition(" cut ") if re.search(r"['\"] cut [\d ]+$", rest[0]) else (rest[0], "", "")
    return Send(int(who), ast.literal_eval(data), tuple(map(int, cuts.split())), what)


def is_sound(script: Sequence[Step]) -> bool:
    r"""Whether each half is completed, on its connection, by the rest that follows, and no rest stands alone.

    >>> is_sound(from_text("0 half b'stats'\n1 close\n0 rest b'-job 1\\r\\n'"))
    True
    >>> is_sound(from_text("0 half b'stats'\n0 close"))
    False
    """
    halves: set[int] = set()
    for step in script:
        if isinstance(step, Wait):
            continue
        is_rest = isinstance(step, Send) and step.part == "rest"
        if is_rest != (step.connection in halves):
            return False
        halves.discard(step.connection)
        if isinstance(step, Send) and step.part == "half":
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

    return _REPEATED.sub(lambda found: found[1] * int(found[2]), _REFERENCE.sub(id_of, data))
