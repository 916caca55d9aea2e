"""A server with a mistake, to prove that the comparison finds it: what is asked, or what is answered, is changed."""

from __future__ import annotations

import re
from typing import Final

from tests.gateway.beanstalk_connection import Address, BeanstalkConnection
from tests.gateway.beanstalk_servers import BeanstalkServer

Change = tuple[bytes, bytes]
"""A pattern, and by what it is replaced."""
MISTAKES: Final[dict[str, tuple[Change | None, Change | None]]] = {
    "touch answers not found": (None, (rb"TOUCHED", b"NOT_FOUND")),
    "release ignores the priority": ((rb"release (\d+) \d+ ", rb"release \1 7 "), None),
    "bury ignores the priority": ((rb"bury (\d+) \d+", rb"bury \1 7"), None),
    "a larger kick is one of 1": ((rb"kick \d{2,}", b"kick 1"), None),
    "reserve-job takes nothing": ((rb"reserve-job \d+", b"reserve-job 0"), None),
    "a tube is never ignored": ((rb"ignore [a-z-]+\r", b"ignore nowhere\r"), None),
    "bodies end at a zero byte": (None, (rb"\0", b" ")),
    "a reserved job is called ready": (None, (rb"state: reserved", b"state: ready   ")),
    "a delay of release is lost": ((rb"(release \d+ \d+) [1-9]\d*", rb"\1 0"), None),
    "a pause is lost": ((rb"(pause-tube [a-z-]+) 1\d*", rb"\1 0"), None),
}
"""Changes of what is asked and of what is answered."""


class MistakenServer:
    """A server that is spoken to through a mistake."""

    def __init__(self, behind: BeanstalkServer, mistake: str) -> None:
        self._behind = behind
        self._mistake = mistake

    def connect(self) -> BeanstalkConnection:
        """A connection that makes the mistake."""
        return _MistakenConnection(self._behind.address, *MISTAKES[self._mistake])


class _MistakenConnection(BeanstalkConnection):
    def __init__(self, address: Address, asked: Change | None, answered: Change | None) -> None:
        super().__init__(address)
        self._asked, self._answered = asked, answered

    def send(self, data: bytes) -> None:
        super().send(re.sub(*self._asked, data) if self._asked else data)

    def _next_answer(self) -> bytes | None:
        answer = super()._next_answer()
        return re.sub(*self._answered, answer) if answer and self._answered else answer
