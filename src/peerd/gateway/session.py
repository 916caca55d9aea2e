"""What sessions of both protocols have in common: their client, and replies in the order of its commands.

A session is the side of a connection that speaks a protocol: commands of its client become operations of the gateway,
and their results become replies.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, Final, Literal, Protocol

from msgspec import Struct

from peerd.domain.task import NewTask
from peerd.gateway.gateway import Gateway
from peerd.gateway.operations import StoreQuery
from peerd.gateway.reply_memory import COMMAND, ReplyAccount
from peerd.gateway.tubes import DEFAULT_TUBE

MAX_UNANSWERED: Final = 1_000
"""Commands of a connection that may be executed at once."""
Unfinished = Literal["line", "body"]
MakeReply = Callable[[Any], bytes]
"""Words the result of an operation for the client."""


class Place(Struct):
    """The place of one reply, and the bytes that are counted for it until it is sent."""

    size: int
    reply: bytes | None = None


class RepliesInOrder:
    """The replies of one connection.

    Args:
        send: called with each reply.
        account: of the connection; it counts what is sent itself.

    >>> from unittest.mock import Mock
    >>> sent = []
    >>> replies = RepliesInOrder(sent.append, Mock())
    >>> first, second = replies.reserve_place(0), replies.reserve_place(0)
    >>> replies.fill(second, b"2"); sent
    []
    >>> replies.fill(first, b"1"); sent
    [b'1', b'2']
    """

    __slots__ = ("_account", "_places", "_send")

    def __init__(self, send: Callable[[bytes], None], account: ReplyAccount) -> None:
        self._send = send
        self._account = account
        self._places: deque[Place] = deque()

    def __len__(self) -> int:
        """How many commands have no reply yet, or wait for the reply of an earlier one."""
        return len(self._places)

    @property
    def are_too_many(self) -> bool:
        """Whether no more commands may be executed before some of these replies were sent."""
        return len(self._places) >= MAX_UNANSWERED or self._account.is_full

    def reserve_place(self, size: int) -> Place:
        """The place of the next reply, whose command and reply take so many bytes at the most."""
        place = Place(size)
        self._account.add_command(size)
        self._places.append(place)
        return place

    def fill(self, place: Place, reply: bytes) -> None:
        """Give the reply of a place; it is sent when all before it are."""
        place.reply = reply
        places = self._places
        while places and (ready := places[0].reply) is not None:
            self._account.add_command(-places.popleft().size)
            self._send(ready)

    def add(self, reply: bytes) -> None:
        """Give the next reply."""
        if self._places:
            self.reserve_place(len(reply)).reply = reply
        else:
            self._send(reply)


class ClientConnection(Protocol):
    """What a session needs of its connection."""

    account: ReplyAccount

    def send(self, data: bytes) -> None:
        """Send bytes to the client."""

    def close(self) -> None:
        """Close when the commands so far are answered."""


class Session(ABC):
    """A connection, as its protocol sees it.

    Attributes:
        always_room: bytes of a command for which there is memory in any case.
    """

    always_room = 0

    def __init__(self, gateway: Gateway, connection: ClientConnection) -> None:
        self.gateway = gateway
        self.replies = RepliesInOrder(connection.send, connection.account)
        self.account = connection.account
        self.is_authorized = gateway.settings.token is None
        """The client has shown its token, or needs none."""
        self.is_suspended = False
        """The client reads too slowly, so no more of its commands are executed."""
        self.is_behind = False
        """Commands wait until replies have been sent, or for memory."""
        self.is_producer = self.is_worker = False
        self.command_size = 0
        """Bytes of the command that is being executed, or of the largest job that it may be answered with."""
        self._connection = connection
        self._is_blocked = False
        """What follows depends on the result of the last command."""
        self._is_ended = False
        self._held: Any = None
        """A command that waits for those before it, or for memory."""
        self._is_executing = False
        self.client = self.gateway.reserving.connect()
        self.client.watched = (DEFAULT_TUBE,)

    # ---------------------------------------------------------------- what a protocol defines

    @property
    @abstractmethod
    def buffered(self) -> int:
        """Bytes of commands that were not executed yet."""

    @property
    @abstractmethod
    def unfinished(self) -> Unfinished | None:
        """What the client has begun and has to finish, within the time of a line or of a job."""

    @property
    @abstractmethod
    def is_answered(self) -> bool:
        """Whether every command that may still be executed has its reply."""

    @property
    @abstractmethod
    def is_busy(self) -> bool:
        """Whether the connection holds a job, or a command that does not wait is being executed."""

    @abstractmethod
    def receive(self, data: bytes) -> None:
        """Take bytes of the client."""

    @abstractmethod
    def end_of_input(self) -> None:
        """The client sends nothing more: what waits for a job has found none."""

    @abstractmethod
    def _next_command(self) -> Any:
        """The next command that is whole; None if there is none."""

    @abstractmethod
    def _must_wait(self, command: Any) -> bool:
        """Whether earlier commands must be answered before this one is executed."""

    @abstractmethod
    def _size_of_job(self, command: Any) -> int:
        """The size of the job that a command has, or of the largest that it may be answered with."""

    @abstractmethod
    def _carry_out(self, command: Any) -> None:
        """Execute a command."""

    @abstractmethod
    def _answered(self, place: Place, make_reply: MakeReply, result: Any) -> None:
        """Give the reply of a place, and execute what has waited for it."""

    # ---------------------------------------------------------------- the connection

    def end(self) -> None:
        """Execute no more commands, and close the connection when those so far are answered."""
        self._is_ended = True
        self._connection.close()

    def closed(self) -> None:
        """The connection has ended: release what it holds."""
        self._is_ended = True
        self.gateway.reserving.disconnect(self.client)
        self.gateway.producers -= self.is_producer
        self.gateway.workers -= self.is_worker

    def authorize(self) -> None:
        """Execute all commands from now on."""
        self.is_authorized = True

    def become_producer(self) -> None:
        """Count the connection as one that puts jobs, as beanstalkd does."""
        self.gateway.producers += not self.is_producer
        self.is_producer = True

    def become_worker(self) -> None:
        """Count the connection as one that reserves jobs, as beanstalkd does."""
        self.gateway.workers += not self.is_worker
        self.is_worker = True

    # ---------------------------------------------------------------- commands

    def execute(self) -> None:
        """Execute the commands that may be executed now."""
        if not self._is_executing:  # a result may come before the command's function has returned
            self._is_executing = True
            try:
                self._execute_next()
            finally:
                self._is_executing = False

    def _execute_next(self) -> None:
        while not (self._is_ended or self._is_blocked):
            self.is_behind = self.is_suspended or self.replies.are_too_many
            if self.is_behind:
                return
            command = self._held or self._next_command()
            if command is None:
                return
            if self._must_wait(command):
                self._held = command
                return
            self.command_size = self._size_of_job(command)
            if self.command_size > self.always_room and not self.account.has_room(self.command_size):
                self._held, self.is_behind = command, True
                return
            self._held = None
            self._carry_out(command)

    # ---------------------------------------------------------------- replies

    def reply_later(self, make_reply: MakeReply) -> Callable[[Any], None]:
        """A callback that gives the next reply: what a function makes of the result."""
        return partial(self._answered, self._reserve_place(), make_reply)

    def reply_before_others(self, make_reply: MakeReply) -> Callable[[Any], None]:
        """A callback that gives the next reply, before which no other command can be executed."""
        self._is_blocked = True
        return partial(self._blocking_answered, self._reserve_place(), make_reply)

    def put(self, job: NewTask, make_reply: MakeReply) -> None:
        """Insert a job; what follows waits for the reply if it depends on a count of the queue."""
        waits_for_count = self.gateway.puts.capacities.is_unknown(job.queue)
        reply = self.reply_before_others if waits_for_count else self.reply_later
        self.gateway.puts.put(self.client, job, reply(make_reply))

    def query(self, reply: Callable[[Any], None], function: Callable[..., Any], *arguments: Any) -> None:
        """Read from the store, and reply; `reply_later` or `reply_before_others` makes of the result what is said."""
        self.gateway.operations.submit(self.client, StoreQuery(function, arguments), reply)

    def _reserve_place(self) -> Place:
        return self.replies.reserve_place(COMMAND + self.command_size)

    def _blocking_answered(self, place: Place, make_reply: MakeReply, result: Any) -> None:
        self._is_blocked = False
        self._answered(place, make_reply, result)
