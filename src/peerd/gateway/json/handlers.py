"""What each message of the JSON protocol does, and its reply; `HANDLERS` is the table. get_job is in `JsonSession`."""

from __future__ import annotations

from functools import partial
from typing import Final

from peerd.domain.errors import DatabaseUnavailable, InvalidTask, RowLocked
from peerd.domain.task import DEFAULT_PRIORITY, LARGEST_CLIENT_SECONDS, NewTask
from peerd.gateway.group_commit import OperationFailed, Written
from peerd.gateway.json import messages, replies
from peerd.gateway.json.session import Handlers, JsonSession
from peerd.gateway.operations import HeldCall
from peerd.gateway.puts import TubeFull
from peerd.gateway.reservation_ends import Ending, ignore
from peerd.gateway.waiting import Reservation
from peerd.store.enqueue import Enqueued
from peerd.store.jobs import holding

HELD_AS_LONG_AS_ITS_CONNECTION: Final = LARGEST_CLIENT_SECONDS
"""The TTR of a job that was added without one."""
DEFAULT_REASON: Final = "no reason given"


def add_job(session: JsonSession, message: messages.AddJob) -> None:
    session.become_producer()
    if session.gateway.refuses_puts:
        session.refuse(
            message, messages.ErrorCode.DRAINING, "this gateway takes no new jobs, because it is about to stop"
        )
        return
    size, most = len(bytes(message.job)), session.gateway.settings.max_job_size
    if size > most:
        session.refuse(message, messages.ErrorCode.TOO_BIG, f"the job has {size} bytes; at most {most} are taken")
        return
    try:
        job = new_task(message)
    except InvalidTask as error:
        session.refuse(message, messages.ErrorCode.INVALID, str(error))
        return
    session.put(job, partial(reply_to_add_job, message))


def notify(session: JsonSession, message: messages.NotifyDone) -> None:
    held = find_held(session, message)
    if held is None:
        return
    callback = session.reply_later(partial(reply_to_held, message))
    if (result := message.result_text) is None:
        session.gateway.ends.delete(session.client, held.job.id, callback)
    else:
        session.gateway.ends.end(session.client, held, holding.complete_held, (result,), callback)


def touch(session: JsonSession, message: messages.TouchJob) -> None:
    held = find_held(session, message)
    if held is None:
        return
    callback = session.reply_later(partial(reply_to_held, message))
    session.gateway.reserving.touch(session.client, held.job.id, callback)
    if message.progress is not None:
        report = HeldCall(held.claim, holding.report_held, (message.progress, message.note))
        session.gateway.operations.submit(session.client, report, ignore)


def fail(session: JsonSession, message: messages.FailJob) -> None:
    held = find_held(session, message)
    if held is not None:
        callback = session.reply_later(partial(reply_to_held, message))
        arguments = (message.reason or DEFAULT_REASON, message.retry)
        session.gateway.ends.end(session.client, held, holding.fail_held, arguments, callback)


def release(session: JsonSession, message: messages.ReleaseJob) -> None:
    held = find_held(session, message)
    if held is not None:
        callback = session.reply_later(partial(reply_to_held, message))
        session.gateway.ends.release(session.client, held.job.id, callback, delay=message.delay or 0)


def auth(session: JsonSession, message: messages.ShowToken) -> None:
    if session.gateway.is_token(message.token.encode()):
        session.authorize()
        session.replies.add(replies.confirmation(message.id))
    else:
        session.refuse(message, messages.ErrorCode.UNAUTHORIZED, "the token is wrong")


HANDLERS: Final[Handlers] = {
    messages.AddJob: add_job,
    messages.NotifyDone: notify,
    messages.TouchJob: touch,
    messages.FailJob: fail,
    messages.ReleaseJob: release,
    messages.ShowToken: auth,
}
"""The function of each message but get_job."""


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
        session.refuse(
            message, messages.ErrorCode.WHICH_JOB, f"this connection holds {len(held)} jobs ({named}); give job_id"
        )
        return None
    job_id = next(iter(held), None) if message.job_id is None else message.job_id
    found = None if job_id is None else held.get(job_id)
    if found is None:
        session.refuse(message, messages.ErrorCode.NOT_HELD, not_held_problem(job_id))
    return found


def not_held_problem(job_id: int | None) -> str:
    """The text of the error `not_held`."""
    return "this connection holds no job" if job_id is None else f"this connection does not hold the job {job_id}"


def reply_to_add_job(message: messages.AddJob, result: int | Enqueued | TubeFull | OperationFailed) -> bytes:
    match result:
        case OperationFailed():
            return reply_to_failure(message, result)
        case TubeFull():
            problem = "the queue has as many jobs as it may have"
            return replies.error_reply(messages.ErrorCode.QUEUE_FULL, problem, messages.command_of(message), message.id)
        case Enqueued():
            return replies.job_added(message.id, result.id, created=result.created)
    return replies.job_added(message.id, result, created=True)


def reply_to_held(message: messages.HeldJobMessage, result: Written | Ending | holding.RecordedFailure) -> bytes:
    """The reply to a message about a held job; the result says whether the row was found as the holder left it."""
    if isinstance(result, OperationFailed):
        return reply_to_failure(message, result)
    if result is False or result is Ending.NOT_FOUND:
        problem = not_held_problem(message.job_id)
        return replies.error_reply(messages.ErrorCode.NOT_HELD, problem, messages.command_of(message), message.id)
    return replies.confirmation(message.id)


def reply_to_failure(message: messages.JsonMessage, failed: OperationFailed) -> bytes:
    """The reply to a message that the database has refused, or whose answer was lost."""
    if isinstance(failed.error, InvalidTask):
        return replies.error_reply(
            messages.ErrorCode.INVALID, str(failed.error), messages.command_of(message), message.id
        )
    match failed.error:
        case DatabaseUnavailable():
            problem = "the database did not answer; try again"
        case RowLocked():
            problem = "another transaction has locked the row; try again"
        case _:
            problem = "the database has refused it; see the log"
    return replies.error_reply(messages.ErrorCode.UNAVAILABLE, problem, messages.command_of(message), message.id)
