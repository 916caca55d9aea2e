"""A connection that speaks the JSON protocol: its messages are carried out in their order.

One thing is not in order: a get_job that finds no job and may wait for one is put aside, and the messages behind it go
on, save further get_jobs. Messages that follow a get_job wait until it is answered or put aside, so that a notify
behind it is about the job that it has taken.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from peerd.domain.task import SPAN_LIMIT
from peerd.gateway.gateway import Gateway
from peerd.gateway.json import replies
from peerd.gateway.json.messages import (
    ErrorCode,
    GetJob,
    JsonMessage,
    Message,
    RefusedMessage,
    ShowToken,
    command_of,
)
from peerd.gateway.json.parser import MessageParser
from peerd.gateway.reply_memory import COMMAND
from peerd.gateway.session import ClientConnection, MakeReply, Place, Session
from peerd.gateway.waiting import Reservation, ReserveEnd

MAX_WAITING: Final = 100
"""get_jobs of a connection that wait for a job."""
RESERVE_ENDS: Final = {
    ReserveEnd.TIMED_OUT: (ErrorCode.NO_WORK, replies.NO_WORK_TEXT),
    ReserveEnd.DEADLINE_SOON: (
        ErrorCode.DEADLINE_SOON,
        "the time to run of a job that this connection holds ends within a second",
    ),
}
Handlers = Mapping[type[JsonMessage], Callable[["JsonSession", Any], None]]


class WaitingGetJob:
    """A get_job that was put aside, and until when it waits, by the event loop's clock."""

    __slots__ = ("message", "until")

    def __init__(self, message: GetJob, until: float) -> None:
        self.message = message
        self.until = until


class JsonSession(Session):
    """One connection.

    Args:
        handlers: the function of each message but get_job.
        gateway: of the process.
        connection: sends the replies.
    """

    __slots__ = (
        "_attempting",
        "_handlers",
        "_has_input_ended",
        "_held",
        "_is_continuing",
        "_is_waiting",
        "_loop",
        "_may_put_aside",
        "_parser",
        "_waiting",
    )

    def __init__(self, handlers: Handlers, gateway: Gateway, connection: ClientConnection) -> None:
        super().__init__(gateway, connection)
        self._handlers = handlers
        self._parser = MessageParser(gateway.settings.max_job_size)
        self._loop = asyncio.get_running_loop()
        self._held: Message | RefusedMessage | None = None
        """A message that waits for the get_jobs before it."""
        self._attempting = 0
        """get_jobs whose first attempt is not over."""
        self._may_put_aside = False
        """Whether the one that is attempted may wait."""
        self._waiting: deque[WaitingGetJob] = deque()
        self._is_waiting = False
        """Whether the gateway waits for the first of them."""
        self._has_input_ended = self._is_continuing = False

    # ---------------------------------------------------------------- the connection

    @property
    def buffered(self) -> int:
        """Bytes of messages that were not carried out yet."""
        return self._parser.buffered + (0 if self._held is None else self._parser.last_size)

    @property
    def is_within_line(self) -> bool:
        """Whether the client has yet to show its token."""
        return not self.is_authorized

    @property
    def is_within_body(self) -> bool:
        """Whether a message has begun that is not whole."""
        return self.is_authorized and self._parser.is_within_message

    @property
    def is_answered(self) -> bool:
        """Whether every message so far was carried out, and has its reply if it gets one."""
        is_behind = self._is_continuing or self._held is not None or self.is_behind
        return not (self.replies or self._waiting or (is_behind and not self._is_ended))

    @property
    def is_busy(self) -> bool:
        """Whether the connection holds a job, or a message that does not wait is being carried out."""
        return bool(self.client.reservations or self.replies)

    def receive(self, data: bytes) -> None:
        """Take bytes of the client."""
        self._parser.feed(data)
        self.execute()

    def end_of_input(self) -> None:
        """The client sends nothing more: get_jobs that wait have found no job."""
        self._has_input_ended = True
        for waiting in self._waiting:
            waiting.until = 0.0
        if self._is_waiting:
            self.gateway.reserving.end_waits(self.client)

    def closed(self) -> None:
        """The connection has ended: release what it holds."""
        self._waiting.clear()
        super().closed()

    # ---------------------------------------------------------------- messages and replies

    def execute(self) -> None:
        """Carry out the messages that may be carried out now."""
        while not (self._is_ended or self._is_blocked):
            self.is_behind = self.is_suspended or self.replies.are_too_many
            if self.is_behind:
                return
            message = self._held or self._parser.next_message()
            if message is None:
                return
            if self._attempting and not self._may_follow(message):
                self._held = message
                return
            takes_job = isinstance(message, GetJob)
            self.command_size = self.gateway.settings.max_job_size if takes_job else self._parser.last_size
            if self.command_size > COMMAND and not self.account.has_room(self.command_size):
                self._held, self.is_behind = message, True
                return
            self._held = None
            self._carry_out(message)

    def _carry_out(self, message: Message | RefusedMessage) -> None:
        if isinstance(message, RefusedMessage):
            if self.is_authorized or message.code.closes:
                self._refuse(message.code, message.problem, message.cmd, message.id)
            else:
                self._require_token(message.cmd, message.id)
        elif not (self.is_authorized or isinstance(message, ShowToken)):
            self._require_token(command_of(message), message.id)
        elif isinstance(message, GetJob):
            self._get_job(message)
        else:
            self._handlers[type(message)](self, message)

    def _require_token(self, cmd: str | None, message_id: int | str | None) -> None:
        self._refuse(ErrorCode.UNAUTHORIZED, "this gateway requires a token: send auth first", cmd, message_id)

    def refuse(self, message: JsonMessage, code: ErrorCode, problem: str) -> None:
        """Reply with an error, which may end the connection."""
        self._refuse(code, problem, command_of(message), message.id)

    def _refuse(self, code: ErrorCode, problem: str, cmd: str | None, message_id: int | str | None) -> None:
        self.replies.add(replies.error_reply(code, problem, cmd, message_id))
        if code.closes:
            self.end()

    def _answered(self, place: Place, make_reply: MakeReply, result: Any) -> None:
        # an empty reply, too, lets the connection see what is buffered still
        self.replies.fill(place, make_reply(result))
        if self._held is not None or self._parser.buffered or self._has_input_ended:
            self._continue_soon()

    def _continue_soon(self) -> None:
        """Go on when the gateway has delivered all results: it must not be asked for a job while it delivers one."""
        if not self._is_continuing:
            self._is_continuing = True
            self._loop.call_soon(self._continue)

    def _continue(self) -> None:
        self._is_continuing = False
        self._wait_for_next()
        self.execute()
        if self._has_input_ended and self.is_answered:
            self._connection.close()

    # ---------------------------------------------------------------- get_job

    def _may_follow(self, message: Message | RefusedMessage) -> bool:
        """Whether a message may be carried out while a get_job before it is attempted."""
        return (
            isinstance(message, GetJob)
            and not (message.wait or self._may_put_aside)
            and message.wanted == self.client.watched
        )

    def _get_job(self, message: GetJob) -> None:
        self.become_worker()
        wait = 0.0 if self._has_input_ended else message.wait or 0.0
        waiting = WaitingGetJob(message, self._loop.time() + wait)
        if not self._waiting:
            self._attempt(waiting)
        elif len(self._waiting) < MAX_WAITING:
            self._waiting.append(waiting)
        else:
            self.refuse(message, ErrorCode.TOO_MANY_WAITING, f"{MAX_WAITING} get_jobs of this connection wait already")

    def _attempt(self, waiting: WaitingGetJob) -> None:
        self._attempting += 1
        self._may_put_aside = bool(waiting.message.wait)
        self.client.watched = waiting.message.wanted
        self.gateway.reserving.reserve(self.client, 0.0, partial(self._attempted, self._reserve_place(), waiting))

    def _attempted(self, place: Any, waiting: WaitingGetJob, result: Reservation | ReserveEnd) -> None:
        self._attempting -= 1
        if result is ReserveEnd.TIMED_OUT and waiting.message.wait and not self._has_input_ended:
            self._waiting.append(waiting)
            self.replies.fill(place, b"")
        else:
            self.replies.fill(place, reply_to_get_job(waiting.message, result))
        self._continue_soon()

    def _wait_for_next(self) -> None:
        """Let the gateway wait for the first of the get_jobs that were put aside."""
        if self._waiting and not (self._is_waiting or self._attempting or self._is_ended):
            first = self._waiting[0]
            self._is_waiting = True
            self.client.watched = first.message.wanted
            left = max(first.until - self._loop.time(), 0.0)
            self.gateway.reserving.reserve(self.client, left, self._waited)

    def _waited(self, result: Reservation | ReserveEnd) -> None:
        self._is_waiting = False
        self._connection.send(reply_to_get_job(self._waiting.popleft().message, result))
        self._continue_soon()


def reply_to_get_job(message: GetJob, result: Reservation | ReserveEnd) -> bytes:
    if isinstance(result, ReserveEnd):
        return replies.error_reply(*RESERVE_ENDS[result], command_of(message), message.id)
    job = result.job
    ttr = job.ttr if job.ttr < SPAN_LIMIT else None
    return replies.job_taken(message.id, job.id, job.queue, job.body, ttr)
