"""A connection that speaks the JSON protocol: its messages are carried out in their order; and what each of them does.

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

from msgspec import Struct

from peerd.domain.errors import DatabaseUnavailable, InvalidTask, RowLocked
from peerd.domain.task import DEFAULT_PRIORITY, LARGEST_CLIENT_SECONDS, SPAN_LIMIT, NewTask
from peerd.gateway.gateway import Gateway
from peerd.gateway.group_commit import Callback, OperationFailed, Written
from peerd.gateway.json import messages, replies
from peerd.gateway.json.messages import ErrorCode, GetJob, JsonMessage, Message, RefusedMessage, ShowToken
from peerd.gateway.json.parser import MessageParser
from peerd.gateway.operations import HeldCall
from peerd.gateway.puts import Admission
from peerd.gateway.reply_memory import COMMAND
from peerd.gateway.reservation_ends import Ending, ignore
from peerd.gateway.session import ClientConnection, MakeReply, Place, Session, Unfinished
from peerd.gateway.waiting import Reservation, ReserveEnd
from peerd.store.enqueue import Enqueued
from peerd.store.jobs import holding

MAX_WAITING: Final = 100
"""get_jobs of a connection that wait for a job."""
RESERVE_ENDS: Final = {
    ReserveEnd.TIMED_OUT: (ErrorCode.NO_WORK, replies.NO_WORK_TEXT),
    ReserveEnd.DEADLINE_SOON: (
        ErrorCode.DEADLINE_SOON,
        "the time to run of a job that this connection holds ends within a second",
    ),
}


class WaitingGetJob(Struct):
    """A get_job that was put aside, and until when it waits, by the event loop's clock."""

    message: GetJob
    until: float


class JsonSession(Session):
    """A connection that speaks JSON.

    Args:
        gateway: of the process.
        connection: sends the replies.
    """

    always_room = COMMAND

    def __init__(self, gateway: Gateway, connection: ClientConnection) -> None:
        super().__init__(gateway, connection)
        self._parser = MessageParser(gateway.settings.max_job_size)
        self._loop = asyncio.get_running_loop()
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
    def unfinished(self) -> Unfinished | None:
        """A message that has begun and is not whole; a client that has yet to show its token has the time of a line."""
        if not self.is_authorized:
            return "line"
        return "body" if self._parser.is_within_message else None

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

    def _next_command(self) -> Message | RefusedMessage | None:
        return self._parser.next_message()

    def _must_wait(self, command: Message | RefusedMessage) -> bool:
        return bool(self._attempting) and not self._may_follow(command)

    def _size_of_job(self, command: Message | RefusedMessage) -> int:
        return self.gateway.settings.max_job_size if isinstance(command, GetJob) else self._parser.last_size

    def _carry_out(self, command: Message | RefusedMessage) -> None:
        if isinstance(command, RefusedMessage) and (self.is_authorized or command.code.closes):
            self.refuse(command, command.code, command.problem)
        elif not (self.is_authorized or isinstance(command, ShowToken)):
            self.refuse(command, ErrorCode.UNAUTHORIZED, "this gateway requires a token: send auth first")
        elif isinstance(command, GetJob):
            self._get_job(command)
        elif not isinstance(command, messages.HeldJobMessage):
            HANDLERS[type(command)](self, command)
        elif (held := find_held(self, command)) is not None:
            HANDLERS[type(command)](self, command, held, self.reply_later(partial(reply_to_held, command)))

    def refuse(self, message: JsonMessage | RefusedMessage, code: ErrorCode, problem: str) -> None:
        """Reply with an error, which may end the connection."""
        self.replies.add(replies.error_reply(message, code, problem))
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
        return replies.error_reply(message, *RESERVE_ENDS[result])
    job = result.job
    ttr = job.ttr if job.ttr < SPAN_LIMIT else None
    return replies.job_taken(message.id, job.id, job.queue, job.body, ttr)


# ---------------------------------------------------------------- what each message does


HELD_AS_LONG_AS_ITS_CONNECTION: Final = LARGEST_CLIENT_SECONDS
"""The TTR of a job that was added without one."""
DEFAULT_REASON: Final = "no reason given"


def add_job(session: JsonSession, message: messages.AddJob) -> None:
    session.become_producer()
    if session.gateway.refuses_puts:
        session.refuse(message, ErrorCode.DRAINING, "this gateway takes no new jobs, because it is about to stop")
        return
    size, most = len(bytes(message.job)), session.gateway.settings.max_job_size
    if size > most:
        session.refuse(message, ErrorCode.TOO_BIG, f"the job has {size} bytes; at most {most} are taken")
        return
    try:
        job = new_task(message)
    except InvalidTask as error:
        session.refuse(message, ErrorCode.INVALID, str(error))
        return
    session.put(job, partial(reply_to_add_job, message))


def notify(session: JsonSession, message: messages.NotifyDone, held: Reservation, reply: Callback) -> None:
    if (result := message.result_text) is None:
        session.gateway.ends.delete(session.client, held.job.id, reply)
    else:
        session.gateway.ends.end(session.client, held, holding.complete_held, (result,), reply)


def touch(session: JsonSession, message: messages.TouchJob, held: Reservation, reply: Callback) -> None:
    session.gateway.reserving.touch(session.client, held.job.id, reply)
    if message.progress is not None:
        report = HeldCall(held.claim, holding.report_held, (message.progress, message.note))
        session.gateway.operations.submit(session.client, report, ignore)


def fail(session: JsonSession, message: messages.FailJob, held: Reservation, reply: Callback) -> None:
    arguments = (message.reason or DEFAULT_REASON, message.retry)
    session.gateway.ends.end(session.client, held, holding.fail_held, arguments, reply)


def release(session: JsonSession, message: messages.ReleaseJob, held: Reservation, reply: Callback) -> None:
    session.gateway.ends.release(session.client, held.job.id, reply, delay=message.delay or 0)


def auth(session: JsonSession, message: messages.ShowToken) -> None:
    if session.gateway.is_token(message.token.encode()):
        session.authorize()
        session.replies.add(replies.confirmation(message.id))
    else:
        session.refuse(message, ErrorCode.UNAUTHORIZED, "the token is wrong")


HANDLERS: Final[Mapping[type, Callable[..., None]]] = {
    messages.AddJob: add_job,
    messages.NotifyDone: notify,
    messages.TouchJob: touch,
    messages.FailJob: fail,
    messages.ReleaseJob: release,
    messages.ShowToken: auth,
}
"""The function of each message but get_job; of one about a held job, with its reservation and what gives the reply."""


def new_task(message: messages.AddJob) -> NewTask:
    """The task of an add_job. Raises InvalidTask."""
    return NewTask(
        queue=messages.DEFAULT_QUEUE if message.queue is None else message.queue,
        name=message.name or "",
        body=bytes(message.job).decode(),
        priority=DEFAULT_PRIORITY if message.priority is None else message.priority,
        max_attempts=message.max_attempts,
        unique_key=message.unique,
        unique_for=message.unique_for or "unfinished",
        ttr=message.ttr or HELD_AS_LONG_AS_ITS_CONNECTION,
        delay=message.delay or 0,
    )


def find_held(session: JsonSession, message: messages.HeldJobMessage) -> Reservation | None:
    """The reservation that a message is about; without one, the message is refused."""
    held = session.client.reservations
    if message.job_id is None and len(held) > 1:
        named = ", ".join(str(job_id) for job_id in list(held)[:5])
        session.refuse(message, ErrorCode.WHICH_JOB, f"this connection holds {len(held)} jobs ({named}); give job_id")
        return None
    job_id = next(iter(held), None) if message.job_id is None else message.job_id
    found = None if job_id is None else held.get(job_id)
    if found is None:
        session.refuse(message, ErrorCode.NOT_HELD, not_held_problem(job_id))
    return found


def not_held_problem(job_id: int | None) -> str:
    """The text of the error `not_held`."""
    return "this connection holds no job" if job_id is None else f"this connection does not hold the job {job_id}"


def reply_to_add_job(message: messages.AddJob, result: Enqueued | Admission | OperationFailed) -> bytes:
    match result:
        case Enqueued():
            return replies.job_added(message.id, result.id, created=result.created)
        case OperationFailed():
            return reply_to_failure(message, result)
        case _:
            return replies.error_reply(message, ErrorCode.QUEUE_FULL, "the queue has as many jobs as it may have")


def reply_to_held(message: messages.HeldJobMessage, result: Written | Ending | holding.RecordedFailure) -> bytes:
    """The reply to a message about a held job; the result says whether the row was found as the holder left it."""
    if isinstance(result, OperationFailed):
        return reply_to_failure(message, result)
    if result is False or result is Ending.NOT_FOUND:
        problem = not_held_problem(message.job_id)
        return replies.error_reply(message, ErrorCode.NOT_HELD, problem)
    return replies.confirmation(message.id)


def reply_to_failure(message: messages.JsonMessage, failed: OperationFailed) -> bytes:
    """The reply to a message that the database has refused, or whose answer was lost."""
    if isinstance(failed.error, InvalidTask):
        return replies.error_reply(message, ErrorCode.INVALID, str(failed.error))
    match failed.error:
        case DatabaseUnavailable():
            problem = "the database did not answer; try again"
        case RowLocked():
            problem = "another transaction has locked the row; try again"
        case _:
            problem = "the database has refused it; see the log"
    return replies.error_reply(message, ErrorCode.UNAVAILABLE, problem)
