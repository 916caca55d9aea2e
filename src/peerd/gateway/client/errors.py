"""The errors of the JSON protocol's Python client."""

from __future__ import annotations

import os

from peerd.domain.errors import PeerdError
from peerd.domain.units import format_duration


class JobClientError(PeerdError):
    """The root of the errors of a `JobClient` and an `AsyncJobClient`."""


class MessageRefused(JobClientError):
    """The gateway has refused a message and changed nothing. `code` is from the table in docs/protocol.md."""

    def __init__(self, code: str, problem: str, cmd: str | None) -> None:
        self.code = code
        self.problem = problem
        self.cmd = cmd
        super().__init__(problem if cmd is None else f"{cmd}: {problem}")


class NoWork(MessageRefused, LookupError):
    """The queues have no job that could be taken."""


class JobNotHeld(MessageRefused, LookupError):
    """The connection does not hold this job: its time to run is over, or it was canceled, moved or finished."""


class GatewayUnreachable(JobClientError, ConnectionError):
    """No gateway accepts connections at an address."""

    def __init__(self, address: str, problem: str) -> None:
        self.address = address
        super().__init__(
            f"no gateway at {address}: {problem}; is its node running, and does [gateway.NAME] bind there?"
        )


class JobConnectionLost(JobClientError, ConnectionError):
    """The connection has ended. The jobs that it held are back in their queues; connect again to go on."""

    def __init__(self, address: str, problem: str) -> None:
        self.address = address
        super().__init__(f"the connection to the gateway at {address} has ended ({problem}); connect again")


class ReplyTimeout(JobClientError, TimeoutError):
    """The gateway did not reply in time. The connection is closed, because a later reply would be taken for another."""

    def __init__(self, address: str, cmd: str, seconds: float) -> None:
        self.address = address
        self.cmd = cmd
        super().__init__(f"the gateway at {address} did not reply to {cmd} within {format_duration(seconds)}")


class InvalidReply(JobClientError):
    """What was received is no reply of the JSON protocol: the program at that address is no gateway."""

    def __init__(self, address: str, problem: str) -> None:
        self.address = address
        super().__init__(f"the program at {address} does not speak peerd's JSON protocol: {problem}")


def describe(error: OSError) -> str:
    """The cause of a failed connection, in the words of the system.

    >>> describe(ConnectionRefusedError(111, "Connect call failed ('127.0.0.1', 11300)")), describe(TimeoutError())
    ('Connection refused', 'no answer')
    """
    if type(error).__module__ == "builtins" and error.errno:
        return os.strerror(error.errno)
    return str(error) or "no answer"
