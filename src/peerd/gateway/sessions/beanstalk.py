"""A connection that speaks beanstalkd's protocol: its commands are executed in their order, and answered in it.

They are executed in groups where that makes no difference: all that do not wait follow each other into the same batch.
A reserve may wait, so only further reserves follow it before it is answered.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from peerd.gateway.batches import OperationFailed
from peerd.gateway.operations import StoreQuery
from peerd.gateway.process_state import GatewayState
from peerd.gateway.protocols.beanstalk import replies
from peerd.gateway.protocols.beanstalk.commands import (
    COUNTERS,
    Command,
    InvalidCommand,
    ListTubesCommand,
    PeekBuriedCommand,
    PeekCommand,
    PeekDelayedCommand,
    PeekReadyCommand,
    PutCommand,
    ReserveCommand,
    ReserveJobCommand,
    ReserveWithTimeoutCommand,
    StatsCommand,
    StatsTubeCommand,
    UseCommand,
    WatchCommand,
    counter_of,
)
from peerd.gateway.protocols.beanstalk.parser import CommandParser
from peerd.gateway.reply_memory import COMMAND, ReplyAccount
from peerd.gateway.sessions.beanstalk_commands import EXECUTE
from peerd.gateway.sessions.replies_in_order import Place, RepliesInOrder
from peerd.gateway.tubes import DEFAULT_TUBE

PUT_COUNTER: Final = COUNTERS[PutCommand]
RESERVES: Final = frozenset({ReserveCommand, ReserveWithTimeoutCommand})
"""Commands that may follow a reserve before it is answered."""
PEEKS: Final = frozenset({PeekCommand, PeekReadyCommand, PeekDelayedCommand, PeekBuriedCommand})
ANSWERED_WITH_JOB: Final = RESERVES | PEEKS | {ReserveJobCommand}

OF_THE_MOMENT: Final = frozenset({StatsCommand, StatsTubeCommand, ListTubesCommand})
"""Commands that show what this process knows; neither earlier nor later commands are executed beside them."""


class BeanstalkSession:
    """One connection.

    Args:
        state: of the process.
        send: called with bytes for the client.
        account: of the connection.
        close: called when the client has asked for the end of the connection.
    """

    __slots__ = (
        "_close",
        "_has_counted_put",
        "_held",
        "_is_blocked",
        "_is_ended",
        "_is_executing",
        "_most_reserving",
        "_reserving",
        "account",
        "client",
        "command_size",
        "engine",
        "is_behind",
        "is_producer",
        "is_suspended",
        "is_worker",
        "parser",
        "replies",
        "state",
        "used",
        "watched",
    )

    def __init__(
        self, state: GatewayState, send: Callable[[bytes], None], account: ReplyAccount, close: Callable[[], None]
    ) -> None:
        self.state = state
        self.engine = state.engine
        self.parser = CommandParser(state.options.max_job_size, require_auth=state.options.token is not None)
        self.replies = RepliesInOrder(send, account)
        self.account = account
        self.used = DEFAULT_TUBE
        self.watched = [DEFAULT_TUBE]
        self.is_suspended = False
        """The client reads too slowly, so no more of its commands are executed."""
        self.is_behind = False
        """Commands wait until replies have been sent, or for memory."""
        self.is_producer = self.is_worker = False
        self.command_size = 0
        """Bytes of the job that the command which is being executed has, or may be answered with."""
        self._most_reserving = account.most_jobs(state.options.max_job_size)
        self._close = close
        self._held: Command | None = None
        """A command that waits for the reserves before it."""
        self._reserving = 0
        self._is_blocked = False
        """What follows depends on the answer of the last command."""
        self._has_counted_put = False
        """The put whose body is on its way is among the counted commands."""
        self._is_ended = self._is_executing = False
        self.client = state.engine.reserving.connect()
        self.client.watched = (DEFAULT_TUBE,)
        state.engine.tubes.use(DEFAULT_TUBE)
        state.engine.tubes.watch(DEFAULT_TUBE)

    # ---------------------------------------------------------------- the connection

    @property
    def buffered(self) -> int:
        """Bytes of commands that were not executed yet."""
        return self.parser.buffered + (len(self._held.body) if isinstance(self._held, PutCommand) else 0)

    @property
    def is_authorized(self) -> bool:
        """Whether the client has shown its token, or needs none."""
        return self.parser.is_authorized

    @property
    def is_within_line(self) -> bool:
        """Whether a command has begun that is not whole."""
        return self.parser.is_within_line

    @property
    def is_within_body(self) -> bool:
        """Whether a job has begun that is not whole."""
        return self.parser.is_within_body

    @property
    def is_answered(self) -> bool:
        """Whether every command that may still be executed has its reply."""
        return not (self.replies or (self.is_behind and not self._is_ended))

    @property
    def is_busy(self) -> bool:
        """Whether the connection holds a job, or a command that does not wait is being executed."""
        return bool(self.client.reservations) or len(self.replies) > self._reserving

    def receive(self, data: bytes) -> None:
        """Take bytes of the client."""
        self.parser.feed(data)
        self.execute()

    def end_of_input(self) -> None:
        """The client sends nothing more: a reserve that waits has timed out."""
        self.engine.reserving.end_waits(self.client)

    def end(self) -> None:
        """Execute no more commands, and close the connection when those so far are answered."""
        self._is_ended = True
        self._close()

    def closed(self) -> None:
        """The connection has ended: release what it holds."""
        self._is_ended = True
        self.engine.reserving.disconnect(self.client)
        self.engine.tubes.stop_using(self.used)
        for tube in self.watched:
            self.engine.tubes.ignore(tube)

    # ---------------------------------------------------------------- commands and replies

    def execute(self) -> None:
        """Execute the commands that may be executed now."""
        if not self._is_executing:  # an answer may come before the command's function has returned
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
            command = self._held or self.parser.next_command()
            if command is None:
                self._count_begun_put()
                return
            if self._must_wait(command):
                self._held = command
                return
            self.command_size = self._size_of_job(command)
            if self.command_size and not self.account.has_room(self.command_size):
                self._held, self.is_behind = command, True
                return
            self._held = None
            self._count(command)
            EXECUTE[type(command)](self, command)

    def _must_wait(self, command: Command) -> bool:
        """Whether earlier commands must be answered before this one is executed."""
        kind = type(command)
        if self._reserving and (kind not in RESERVES or self._reserving >= self._most_reserving):
            return True
        if not self.replies:
            return False
        if isinstance(command, UseCommand | WatchCommand):  # an earlier command may delete the last job of the tube
            return self.engine.tubes.depends_on_jobs(command.tube)
        return kind in OF_THE_MOMENT

    def _size_of_job(self, command: Command) -> int:
        """The size of the job that a command has, or the largest that it may be answered with."""
        if isinstance(command, PutCommand):
            return len(command.body)
        return self.state.options.max_job_size if type(command) in ANSWERED_WITH_JOB else 0

    def _count(self, command: Command) -> None:
        counter = counter_of(command)
        if counter == PUT_COUNTER:
            if not isinstance(command, InvalidCommand) or command.reply == replies.EXPECTED_CRLF:
                self._become_producer()
            if self._has_counted_put:
                self._has_counted_put = False
                return
        self.state.commands[counter] += 1

    def _count_begun_put(self) -> None:
        """Count a put by its line, as beanstalkd does, while its body is on its way."""
        if self.parser.is_within_body and not self._has_counted_put:
            self._has_counted_put = True
            self.state.commands[PUT_COUNTER] += 1
            if self.parser.is_keeping_body:
                self._become_producer()

    def _become_producer(self) -> None:
        if not self.is_producer:
            self.is_producer = True
            self.state.producers += 1

    def reply_later(self, make_reply: Callable[[Any], bytes]) -> Callable[[Any], None]:
        """An answer that gives the next reply: what a function makes of the result."""
        return partial(self._answered, self.replies.reserve_place(COMMAND + self.command_size), make_reply)

    def reply_to_reserve_later(self, make_reply: Callable[[Any], bytes]) -> Callable[[Any], None]:
        """The same for a reserve, which takes no memory while it waits; what follows it waits until it is answered."""
        self._reserving += 1
        return partial(self._reserve_answered, self.replies.reserve_place(0), make_reply)

    def reply_before_others(self, make_reply: Callable[[Any], bytes]) -> Callable[[Any], None]:
        """The same for a command without whose answer the next one cannot be executed."""
        self._is_blocked = True
        place = self.replies.reserve_place(COMMAND + self.command_size)
        return partial(self._blocking_answered, place, make_reply)

    def query(self, make_reply: Callable[[Any], bytes], function: Callable[..., Any], *arguments: Any) -> None:
        """Read from the store, and reply with what a function makes of the result."""
        self.engine.operations.submit(self.client, StoreQuery(function, arguments), self.reply_later(make_reply))

    def query_before_others(
        self, make_reply: Callable[[Any], bytes], function: Callable[..., Any], *arguments: Any
    ) -> None:
        """Read from the store, and reply before the next command is executed."""
        query = StoreQuery(function, arguments)
        self.engine.operations.submit(self.client, query, self.reply_before_others(make_reply))

    def _reserve_answered(self, place: Place, make_reply: Callable[[Any], bytes], result: Any) -> None:
        self._reserving -= 1
        self._answered(place, make_reply, result)

    def _blocking_answered(self, place: Place, make_reply: Callable[[Any], bytes], result: Any) -> None:
        self._is_blocked = False
        self._answered(place, make_reply, result)

    def _answered(self, place: Place, make_reply: Callable[[Any], bytes], result: Any) -> None:
        failed = isinstance(result, OperationFailed)
        self.replies.fill(place, replies.INTERNAL_ERROR if failed else make_reply(result))
        if self._held is not None or self.parser.buffered:
            self.execute()
