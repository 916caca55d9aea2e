"""A connection that speaks beanstalkd's protocol: its commands are executed in their order, and answered in it.

They are executed in groups where that makes no difference: all that do not wait follow each other into the same batch.
A reserve may wait, so only further reserves follow it before it is answered.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from peerd.gateway.beanstalk import replies
from peerd.gateway.beanstalk.commands import COUNTERS, TOO_BIG, Command, CommandParser
from peerd.gateway.gateway import Gateway
from peerd.gateway.group_commit import OperationFailed
from peerd.gateway.session import ClientConnection, MakeReply, Place, Session
from peerd.gateway.tubes import DEFAULT_TUBE

RESERVES: Final = frozenset({"reserve", "reserve-with-timeout"})
"""Commands that may follow a reserve before it is answered."""
ANSWERED_WITH_JOB: Final = RESERVES | {"reserve-job", "peek", "peek-ready", "peek-delayed", "peek-buried"}
OF_THE_MOMENT: Final = frozenset({"stats", "stats-tube", "list-tubes"})
"""Commands that show what this process knows; neither earlier nor later commands are executed beside them."""

Handlers = Mapping[str, Callable[..., None]]
"""By the names of commands, functions that are called with the session and the arguments."""


class BeanstalkSession(Session):
    """One connection.

    Args:
        handlers: the function of each command.
        gateway: of the process.
        connection: sends the replies.
    """

    __slots__ = (
        "_handlers",
        "_has_counted_put",
        "_held",
        "_is_executing",
        "_most_reserving",
        "_reserving",
        "parser",
        "used",
        "watched",
    )

    def __init__(self, handlers: Handlers, gateway: Gateway, connection: ClientConnection) -> None:
        super().__init__(gateway, connection)
        self.parser = CommandParser(gateway.settings.max_job_size, require_auth=not self.is_authorized)
        self.used = DEFAULT_TUBE
        self.watched = [DEFAULT_TUBE]
        self._handlers = handlers
        self._most_reserving = self.account.most_jobs(gateway.settings.max_job_size)
        self._held: Command | None = None
        """A command that waits for the reserves before it."""
        self._reserving = 0
        self._has_counted_put = False
        """The put whose body is on its way is among the counted commands."""
        self._is_executing = False
        self.gateway.tubes.use(DEFAULT_TUBE)
        self.gateway.tubes.watch(DEFAULT_TUBE)

    # ---------------------------------------------------------------- the connection

    @property
    def buffered(self) -> int:
        """Bytes of commands that were not executed yet."""
        return self.parser.buffered + (0 if self._held is None else len(self._held.body))

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

    def authorize(self) -> None:
        """Execute all commands from now on."""
        super().authorize()
        self.parser.authorize()

    def end_of_input(self) -> None:
        """The client sends nothing more: a reserve that waits has timed out."""
        self.gateway.reserving.end_waits(self.client)

    def closed(self) -> None:
        """The connection has ended: release what it holds."""
        super().closed()
        self.gateway.tubes.stop_using(self.used)
        for tube in self.watched:
            self.gateway.tubes.ignore(tube)

    # ---------------------------------------------------------------- commands and replies

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
            self._handlers[command.name](self, *command.arguments)

    def _must_wait(self, command: Command) -> bool:
        """Whether earlier commands must be answered before this one is executed."""
        if self._reserving and (command.name not in RESERVES or self._reserving >= self._most_reserving):
            return True
        if not self.replies:
            return False
        if command.name in ("use", "watch"):  # an earlier command may delete the last job of the tube
            return self.gateway.tubes.depends_on_jobs(command.arguments[0])
        return command.name in OF_THE_MOMENT

    def _size_of_job(self, command: Command) -> int:
        """The size of the job that a command has, or the largest that it may be answered with."""
        return self.gateway.settings.max_job_size if command.name in ANSWERED_WITH_JOB else len(command.body)

    def _count(self, command: Command) -> None:
        if command.counted_as == "put":
            if command is not TOO_BIG:
                self.become_producer()
            if self._has_counted_put:
                self._has_counted_put = False
                return
        self.gateway.commands[command.counter] += 1

    def _count_begun_put(self) -> None:
        """Count a put by its line, as beanstalkd does, while its body is on its way."""
        if self.parser.is_within_body and not self._has_counted_put:
            self._has_counted_put = True
            self.gateway.commands[COUNTERS["put"]] += 1
            if self.parser.is_keeping_body:
                self.become_producer()

    def reply_to_reserve_later(self, make_reply: MakeReply) -> Callable[[Any], None]:
        """A callback that gives the reply to a reserve, which takes no memory while it waits.

        Commands behind it wait until it is answered.
        """
        self._reserving += 1
        return partial(self._reserve_answered, self.replies.reserve_place(0), make_reply)

    def _reserve_answered(self, place: Place, make_reply: MakeReply, result: Any) -> None:
        self._reserving -= 1
        self._answered(place, make_reply, result)

    def _answered(self, place: Place, make_reply: MakeReply, result: Any) -> None:
        failed = isinstance(result, OperationFailed)
        self.replies.fill(place, replies.INTERNAL_ERROR if failed else make_reply(result))
        if self._held is not None or self.parser.buffered:
            self.execute()
