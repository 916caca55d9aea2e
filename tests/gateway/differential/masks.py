"""When two answers are alike: what may differ between two servers, or between two moments, is masked.

Ids are compared as the number of the put that gave them; counters from where they stood when the script began; ages and
times that are left with a second of tolerance; names of the machine, versions, and quotation marks not at all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from tests.gateway.beanstalk_connection import BeanstalkConnection, elements, members

MASKED: Final = frozenset(
    ("pid", "version", "rusage-utime", "rusage-stime", "uptime", "binlog-oldest-index", "binlog-current-index",
     "binlog-records-migrated", "binlog-records-written", "binlog-max-size", "id", "hostname", "os", "platform",
     "cmd-stats", "total-connections")
)  # fmt: skip
"""Members of `stats`: `cmd-stats` too, because who plays a script asks for it."""
TOLERANT: Final = frozenset(["age", "time-left", "pause-time-left"])
GROWING: Final = ("cmd-", "total-", "job-timeouts")
CLOSED: Final = b"(the server closes the connection)"
Counters = Mapping[str, str]
Masked = bytes | tuple[object, ...]


def counters(connection: BeanstalkConnection) -> Counters:
    """What counts for as long as the server lives: of the server, and of its tube `default`."""
    return connection.statistics() | {f"default {name}": value for name, value in connection.tube().items()}


def masked(answer: bytes, ids: Sequence[int], before: Counters) -> Masked:
    r"""An answer as a value that can be compared.

    >>> masked(b"RESERVED 8 1\r\nx\r\n", [7, 8], {})
    ('RESERVED', '#1', b'x')
    """
    line, _, body = answer.partition(b"\r\n")
    match line.decode(errors="replace").split(" "):
        case [("RESERVED" | "FOUND") as word, number, _]:
            return (word, _reference(number, ids), body.removesuffix(b"\r\n"))
        case ["INSERTED", number]:
            return ("INSERTED", _reference(number, ids))
        case ["OK", _] if body.startswith(b"---\n- "):
            return ("OK", *sorted(elements(answer)))
        case ["OK", _]:
            return ("OK", *_statistics(members(answer), ids, before))
        case _:
            return answer


def alike(one: Masked, other: Masked, seconds: float = 1.0) -> bool:
    """Whether two masked answers are equal, but for some seconds in times: for rounding, and for a busy machine.

    >>> alike(("OK", ("age", "1"), ("pri", "5")), ("OK", ("age", "2"), ("pri", "5")))
    True
    >>> alike(("OK", ("age", "1"), ("pri", "5")), ("OK", ("age", "1"), ("pri", "6")))
    False
    """
    if isinstance(one, bytes) or isinstance(other, bytes):
        return one == other
    return len(one) == len(other) and all(_alike_part(*both, seconds) for both in zip(one, other, strict=True))


def _alike_part(one: object, other: object, seconds: float) -> bool:
    match one, other:
        case [(str() as name, str() as first), (str() as other_name, str() as second)] if name in TOLERANT:
            return name == other_name and abs(int(first) - int(second)) <= seconds
        case _:
            return one == other


def _statistics(shown: Mapping[str, str], ids: Sequence[int], before: Counters) -> list[tuple[str, str]]:
    of_server = "current-connections" in shown
    prefix = "default " if shown.get("name") == "default" else ""
    values = []
    for name, value in shown.items():
        if of_server and name in MASKED:
            values.append((name, ""))
        elif (of_server or prefix) and name.startswith(GROWING):
            values.append((name, str(int(value) - int(before.get(prefix + name, "0")))))
        else:
            values.append((name, _reference(value, ids) if name == "id" else value))
    return values


def _reference(number: str, ids: Sequence[int]) -> str:
    return f"#{ids.index(int(number))}" if int(number) in ids else number
