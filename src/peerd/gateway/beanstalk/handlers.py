"""What each command of beanstalkd's protocol does, in the order of its protocol text; `HANDLERS` is the table."""

from __future__ import annotations

from functools import partial
from typing import Final

from peerd.domain.errors import InvalidTask
from peerd.domain.task import NewTask
from peerd.gateway.beanstalk import commands, replies
from peerd.gateway.beanstalk.commands import to_task_priority
from peerd.gateway.beanstalk.session import BeanstalkSession, Handlers
from peerd.gateway.beanstalk.statistics import (
    read_server,
    read_tube,
    reply_to_stats,
    reply_to_stats_job,
    reply_to_stats_tube,
    tube_list,
)
from peerd.gateway.puts import TubeFull
from peerd.gateway.reservation_ends import Ending
from peerd.gateway.session import MakeReply
from peerd.gateway.waiting import Reservation, ReserveEnd
from peerd.store import jobs
from peerd.store.enqueue import Enqueued

MAX_JOB_ID: Final = 2**63 - 1
"""The largest id that a database has; a client may ask for larger ones."""

RESERVE_ENDS: Final = {ReserveEnd.TIMED_OUT: replies.TIMED_OUT, ReserveEnd.DEADLINE_SOON: replies.DEADLINE_SOON}
REPLIES_TO_ENDS: Final = {
    Ending.RELEASED: replies.RELEASED,
    Ending.BURIED: replies.BURIED,
    Ending.NOT_FOUND: replies.NOT_FOUND,
}

# ---------------------------------------------------------------- producers


def put(session: BeanstalkSession, command: commands.PutCommand) -> None:
    if session.gateway.refuses_puts:
        session.replies.add(replies.DRAINING)
        return
    text = text_of(command.body)
    try:
        job = NewTask(
            queue=session.used,
            body=text,
            body_bytes=command.body if text is None else None,
            priority=to_task_priority(command.priority),
            ttr=command.ttr,
            delay=command.delay,
        )
    except InvalidTask:  # larger than any task may be
        session.replies.add(replies.JOB_TOO_BIG)
        return
    session.put(job, reply_to_put)


def use(session: BeanstalkSession, command: commands.UseCommand) -> None:
    session.gateway.tubes.use(command.tube, previous=session.used)
    session.used = command.tube
    session.replies.add(replies.using(command.tube))


# ---------------------------------------------------------------- workers


def reserve(session: BeanstalkSession, _: commands.ReserveCommand) -> None:
    session.become_worker()
    session.gateway.reserving.reserve(session.client, None, session.reply_to_reserve_later(reply_to_reserve))


def reserve_with_timeout(session: BeanstalkSession, command: commands.ReserveWithTimeoutCommand) -> None:
    session.become_worker()
    callback = session.reply_to_reserve_later(reply_to_reserve)
    session.gateway.reserving.reserve(session.client, command.timeout, callback)


def reserve_job(session: BeanstalkSession, command: commands.ReserveJobCommand) -> None:
    if is_possible(session, command.job_id):
        callback = session.reply_before_others(partial(reply_to_reserve_job, session))
        session.gateway.reserving.reserve_job(session.client, command.job_id, callback)


def delete(session: BeanstalkSession, command: commands.DeleteCommand) -> None:
    if is_possible(session, command.job_id):
        session.gateway.ends.delete(session.client, command.job_id, session.reply_later(if_found(replies.DELETED)))


def release(session: BeanstalkSession, command: commands.ReleaseCommand) -> None:
    priority = to_task_priority(command.priority)
    callback = session.reply_later(REPLIES_TO_ENDS.__getitem__)
    session.gateway.ends.release(session.client, command.job_id, callback, priority=priority, delay=command.delay)


def bury(session: BeanstalkSession, command: commands.BuryCommand) -> None:
    callback = session.reply_later(REPLIES_TO_ENDS.__getitem__)
    session.gateway.ends.bury(session.client, command.job_id, to_task_priority(command.priority), callback)


def touch(session: BeanstalkSession, command: commands.TouchCommand) -> None:
    session.gateway.reserving.touch(session.client, command.job_id, session.reply_later(if_found(replies.TOUCHED)))


def watch(session: BeanstalkSession, command: commands.WatchCommand) -> None:
    if command.tube not in session.watched:
        session.gateway.tubes.watch(command.tube)
        session.watched.append(command.tube)
        session.client.watched = tuple(session.watched)
    session.replies.add(replies.watching(len(session.watched)))


def ignore(session: BeanstalkSession, command: commands.IgnoreCommand) -> None:
    watched = session.watched
    if command.tube in watched:
        if len(watched) == 1:
            session.replies.add(replies.NOT_IGNORED)
            return
        watched[watched.index(command.tube)] = watched[-1]  # beanstalkd fills the gap with the last one
        watched.pop()
        session.client.watched = tuple(watched)
        session.gateway.tubes.ignore(command.tube)
    session.replies.add(replies.watching(len(watched)))


# ---------------------------------------------------------------- everyone


def peek(session: BeanstalkSession, command: commands.PeekCommand) -> None:
    if is_possible(session, command.job_id):
        session.query(reply_to_peek, jobs.peek, command.job_id)


def peek_ready(session: BeanstalkSession, _: commands.PeekReadyCommand) -> None:
    session.query(reply_to_peek, jobs.peek_ready, session.used)


def peek_delayed(session: BeanstalkSession, _: commands.PeekDelayedCommand) -> None:
    session.query(reply_to_peek, jobs.peek_delayed, session.used)


def peek_buried(session: BeanstalkSession, _: commands.PeekBuriedCommand) -> None:
    session.query(reply_to_peek, jobs.peek_buried, session.used)


def kick(session: BeanstalkSession, command: commands.KickCommand) -> None:
    session.gateway.ready.kick(session.client, session.used, command.bound, session.reply_before_others(replies.kicked))


def kick_job(session: BeanstalkSession, command: commands.KickJobCommand) -> None:
    if is_possible(session, command.job_id):
        session.gateway.ready.kick_job(
            session.client, command.job_id, session.reply_before_others(if_found(replies.KICKED))
        )


def stats_job(session: BeanstalkSession, command: commands.StatsJobCommand) -> None:
    if is_possible(session, command.job_id):
        session.query(reply_to_stats_job, jobs.job_statistics, command.job_id)


def stats_tube(session: BeanstalkSession, command: commands.StatsTubeCommand) -> None:
    make_reply = partial(reply_to_stats_tube, session.gateway, command.tube)
    session.query_before_others(make_reply, read_tube, session.gateway.tubes.table_counts, command.tube)


def stats(session: BeanstalkSession, _: commands.StatsCommand) -> None:
    make_reply = partial(reply_to_stats, session.gateway)
    session.query_before_others(make_reply, read_server, session.gateway.tubes.table_counts)


def list_tubes(session: BeanstalkSession, _: commands.ListTubesCommand) -> None:
    session.query_before_others(partial(reply_to_list_tubes, session), jobs.tubes_with_jobs)


def list_tube_used(session: BeanstalkSession, _: commands.ListTubeUsedCommand) -> None:
    session.replies.add(replies.using(session.used))


def list_tubes_watched(session: BeanstalkSession, _: commands.ListTubesWatchedCommand) -> None:
    session.replies.add(replies.ok(tube_list(session.watched)))


def quit_(session: BeanstalkSession, _: commands.QuitCommand) -> None:
    session.end()


def pause_tube(session: BeanstalkSession, command: commands.PauseTubeCommand) -> None:
    session.gateway.tubes.pause(
        session.client, command.tube, command.seconds, session.reply_later(if_found(replies.PAUSED))
    )


# ---------------------------------------------------------------- what beanstalkd does not have


def auth(session: BeanstalkSession, command: commands.AuthCommand) -> None:
    if session.gateway.is_token(command.token):
        session.authorize()
        session.replies.add(replies.AUTHORIZED)
    else:
        session.replies.add(replies.UNAUTHORIZED)
        session.end()


def invalid(session: BeanstalkSession, command: commands.InvalidCommand) -> None:
    session.replies.add(command.reply)


HANDLERS: Final[Handlers] = {
    commands.PutCommand: put,
    commands.UseCommand: use,
    commands.ReserveCommand: reserve,
    commands.ReserveWithTimeoutCommand: reserve_with_timeout,
    commands.ReserveJobCommand: reserve_job,
    commands.DeleteCommand: delete,
    commands.ReleaseCommand: release,
    commands.BuryCommand: bury,
    commands.TouchCommand: touch,
    commands.WatchCommand: watch,
    commands.IgnoreCommand: ignore,
    commands.PeekCommand: peek,
    commands.PeekReadyCommand: peek_ready,
    commands.PeekDelayedCommand: peek_delayed,
    commands.PeekBuriedCommand: peek_buried,
    commands.KickCommand: kick,
    commands.KickJobCommand: kick_job,
    commands.StatsJobCommand: stats_job,
    commands.StatsTubeCommand: stats_tube,
    commands.StatsCommand: stats,
    commands.ListTubesCommand: list_tubes,
    commands.ListTubeUsedCommand: list_tube_used,
    commands.ListTubesWatchedCommand: list_tubes_watched,
    commands.QuitCommand: quit_,
    commands.PauseTubeCommand: pause_tube,
    commands.AuthCommand: auth,
    commands.InvalidCommand: invalid,
}
"""The function of each command; `commands.COMMANDS` has their lines."""


def is_possible(session: BeanstalkSession, job_id: int) -> bool:
    """Whether a job can have this id; otherwise it is not found."""
    if 0 < job_id <= MAX_JOB_ID:
        return True
    session.replies.add(replies.NOT_FOUND)
    return False


def text_of(body: bytes) -> str | None:
    r"""A body as text, if a column of text can hold it.

    >>> text_of("grüße".encode()), text_of(b"\xff"), text_of(b"\0")
    ('grüße', None, None)
    """
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return None
    return None if "\0" in text else text


def if_found(reply: bytes) -> MakeReply:
    """A reply to a command about a job or a tube, which may not be there."""
    return lambda found: reply if found else replies.NOT_FOUND


def reply_to_put(result: Enqueued | TubeFull) -> bytes:
    return replies.OUT_OF_MEMORY if isinstance(result, TubeFull) else replies.inserted(result.id)


def reply_to_reserve(result: Reservation | ReserveEnd) -> bytes:
    if isinstance(result, Reservation):
        return replies.reserved(result.job.id, result.job.body)
    return RESERVE_ENDS[result]


def reply_to_reserve_job(session: BeanstalkSession, result: Reservation | None) -> bytes:
    if result is None:
        return replies.NOT_FOUND
    session.become_worker()
    return reply_to_reserve(result)


def reply_to_list_tubes(session: BeanstalkSession, with_jobs: list[str]) -> bytes:
    return replies.ok(tube_list(dict.fromkeys([*session.gateway.tubes.needed(), *with_jobs])))


def reply_to_peek(found: tuple[int, bytes] | None) -> bytes:
    return replies.NOT_FOUND if found is None else replies.found(*found)
