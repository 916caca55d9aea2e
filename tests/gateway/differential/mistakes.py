"""A server with a mistake, to prove that the comparison finds it: what is asked, or what is answered, is changed."""

from __future__ import annotations

import re
from typing import Final

from tests.gateway.beanstalk_connection import BeanstalkConnection
from tests.gateway.beanstalk_servers import BeanstalkServer

Change = tuple[bytes, bytes]
"""A pattern, and by what it is replaced."""
ASKED: Final[dict[str, Change]] = {
    "release ignores the priority": (rb"release (\d+) \d+ ", rb"release \1 7 "),
    "bury ignores the priority": (rb"bury (\d+) \d+", rb"bury \1 7"),
    "a larger kick is one of 1": (rb"kick \d{2,}", b"kick 1"),
    "reserve-job takes nothing": (rb"reserve-job \d+", b"reserve-job 0"),
    "a tube is never ignored": (rb"ignore [a-z-]+\r", b"ignore nowhere\r"),
    "a delay of release is lost": (rb"(release \d+ \d+) [1-9]\d*", rb"\1 0"),
    "a pause is lost": (rb"(pause-tube [a-z-]+) 1\d*", rb"\1 0"),
}
ANSWERED: Final[dict[str, Change]] = {
    "touch answers not found": (rb"TOUCHED", b"NOT_FOUND"),
    "bodies end at a zero byte": (rb"\0", b" "),
    "a reserved job is called ready": (rb"state: reserved", b"state: ready   "),
}
NOTHING: Final[Change] = (rb"(?!)", b"")


class MistakenServer:
    """A server that is spoken to through a mistake."""

    def __init__(self, behind: BeanstalkServer, mistake: str) -> None:
        self._behind = behind
        self._mistake = mistake

    def connect(self) -> BeanstalkConnection:
        connection = _MistakenConnection(self._behind.address)
        connection.asked = ASKED.get(self._mistake, NOTHING)
        connection.answered = ANSWERED.get(self._mistake, NOTHING)
        return connection


class _MistakenConnection(BeanstalkConnection):
    asked = answered = NOTHING

    def send(self, data: bytes) -> None:
        super().send(re.sub(*self.asked, data))

    def _next_answer(self) -> bytes | None:
        answer = super()._next_answer()
        return answer and re.sub(*self.answered, answer)
