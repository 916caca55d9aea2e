"""Errors between a proxy and the real client in the agent."""

from __future__ import annotations

from peerd.domain.duration import format_duration
from peerd.domain.errors import PeerdError
from peerd.domain.quoting import quoted


class SharedError(PeerdError):
    """The root of the errors of shared connections."""


class SharedCallFailed(SharedError):
    """The real client raised an exception; the name of its type and its text are carried over.

    Args:
        what: the client's class and the method or key.
        type_name: of the exception.
        text: of the exception.
    """

    def __init__(self, what: str, type_name: str, text: str) -> None:
        self.type_name = type_name
        self.text = text
        super().__init__(f"{what} failed in the agent: {type_name}: {text}" if text else f"{what}: {type_name}")


class SharedCallTimedOut(SharedError, TimeoutError):
    """No answer came in time. The call may have been carried out; the agent has been asked to cancel it."""

    def __init__(self, what: str, seconds: float, state: str) -> None:
        super().__init__(f"{what} was not answered within {format_duration(round(seconds, 3))}: {state}")


class AgentLost(SharedError, ConnectionError):
    """The agent ended before it answered. The call is not repeated, for it may have been carried out."""

    def __init__(self, what: str) -> None:
        super().__init__(f"the agent ended before it answered {what}, which may have been carried out")


class NotShared(SharedError, LookupError):
    """The agent of this node shares no such class."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(
            f"the agent shares no {name}: call agent.share({name.rpartition('.')[2]}) in the function that "
            "[agent] setup names"
        )


class NotSerializable(SharedError, ValueError):
    """A value that cannot be carried from one process to another."""

    def __init__(self, what: str, problem: str) -> None:
        super().__init__(
            f"{what} cannot be carried to another process: {problem}; give None, booleans, numbers, texts, bytes, "
            "times, lists, dicts, dataclasses or msgspec structs of them"
        )


class NoSuchSharedMethod(SharedError, AttributeError):
    """A name that is no public async method of a shared class."""

    def __init__(self, client: str, name: str, known: list[str]) -> None:
        super().__init__(
            f"{client} has no async method {quoted(name)} that another process may call; it has {', '.join(known)}"
        )


class WrongEventLoop(SharedError, RuntimeError):
    """A shared client was awaited on an event loop of the user's own."""

    def __init__(self) -> None:
        super().__init__(
            "a shared client belongs to the event loop of its process: await it there, or call it without await in a "
            "thread that has no event loop"
        )
