"""Errors of a client of a server, beside those of the operations, which it raises as a client of the database does."""

from __future__ import annotations

from peerd.domain.errors import DatabaseUnavailable, PeerdError
from peerd.domain.quoting import quoted


class ServerUnreachable(DatabaseUnavailable):
    """The server does not answer. A write may or may not have been done, if it was reached. `reason` is the cause."""

    def __init__(self, server: str, reason: str, *, was_reached: bool = True) -> None:
        self.server = server
        self.was_reached = was_reached
        super().__init__(reason, f"the server {server} does not answer: {reason}")


class ServerNotReady(DatabaseUnavailable):
    """The server cannot do it now: it is too busy, or what it needs does not answer. `reason` is the cause."""

    def __init__(self, server: str, reason: str) -> None:
        self.server = server
        super().__init__(reason, f"the server {server} is not ready: {reason}")


class ServerRefused(PeerdError):
    """The server refused a request. `status` is a status of HTTP, `code` names the kind of error."""

    def __init__(self, server: str, status: int, code: str, detail: str) -> None:
        self.server = server
        self.status = status
        self.code = code
        self.detail = detail
        super().__init__(f"the server {server} refuses the request ({status} {code}): {detail}")


class TokenRefused(ServerRefused):
    """The server takes no request without a token, or not with this one."""


class UnexpectedAnswer(PeerdError):
    """The answer of a server cannot be one of this version of peerd. `problem` says why."""

    def __init__(self, server: str, problem: str) -> None:
        self.server = server
        self.problem = problem
        super().__init__(
            f"{server} does not answer as peerd's API does: {problem}; is the URL right, and does the server run "
            "the same version as this client?"
        )


class RequestNotSent(PeerdError, ValueError):
    """The arguments of an operation cannot be written as JSON; nothing was sent."""

    def __init__(self, operation: str, problem: str) -> None:
        self.operation = operation
        super().__init__(f"the arguments of {operation} cannot be sent: {problem}")


class DatabaseRequired(PeerdError, RuntimeError):
    """Only a client of the database has this; `what` is its name."""

    def __init__(self, what: str, server: str) -> None:
        self.what = what
        self.server = server
        super().__init__(f"client.{what} needs the database, and this is a client of the server {server}")


class ServerRequired(PeerdError, RuntimeError):
    """Only a client of a server has this; `what` is its name."""

    def __init__(self, what: str) -> None:
        self.what = what
        super().__init__(f"client.{what} needs a server, Client('http://…'), and this is a client of the database")


class InvalidServer(PeerdError, ValueError):
    """The URL, the token or the certificate of a server cannot be used."""

    def __init__(self, url: str, problem: str) -> None:
        self.problem = problem
        super().__init__(f"{quoted(url)} is no server: {problem}")
