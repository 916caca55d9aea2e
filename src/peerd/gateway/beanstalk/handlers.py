"""What each command of beanstalkd's protocol does, in the order of its protocol text; `HANDLERS` is the table."""

from __future__ import annotations

from functools import partial
from typing import Final

from peerd.domain.errors import InvalidTask
from peerd.domain.task import NewTask
from peerd.gateway.beanstalk import replies
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
from peerd.store.enqueue import Enqueued
from peerd.store.jobs import statistics

MAX_JOB_ID: Final = 2**63 - 1
"""The largest id that a database has; a client may ask for larger ones."""

RESERVE_ENDS: Final = {ReserveEnd.TIMED_OUT: replies.TIMED_OUT, ReserveEnd.DEADLINE_SOON: replies.DEADLINE_SOON}
REPLIES_TO_ENDS: Final = {
    Ending.RELEASED: replies.RELEASED,
    Ending.BURIED: replies.BURIED,
    Ending.NOT_FOUND: replies.NOT_FOUND,
}

# ---------------------------------------------------------------- producers


def put(session: BeanstalkSession, priority: int, delay: int, ttr: int, body: bytes) -> None:
    """Insert a job into the used tube. A TTR of 0 has become 1."""
    if session.gateway.refuses_puts:
        session.replies.add(replies.DRAINING)
        return
    text = text_of(body)
    try:
        job = NewTask(
            queue=session.used,
            body=text,
            body_bytes=body if text is None else None,
            priority=to_task_priority(priority),
            ttr=ttr,
            delay=delay,
        )
    except InvalidTask:  # larger than any task may be
        session.replies.add(replies.JOB_TOO_BIG)
        return
    session.put(job, reply_to_put)


def use(session: BeanstalkSession, tube: str) -> None:
    """Use a tube: later jobs are put into it, and peeked and kicked in it."""
    session.gateway.tubes.use(tube, previous=session.used)
    session.used = tube
    session.replies.add(replies.using(tube))


# ---------------------------------------------------------------- workers


def reserve(session: BeanstalkSession) -> None:
    """Reserve the first ready job of the watched tubes; wait for it without end."""
    session.become_worker()
    session.gateway.reserving.reserve(session.client, None, session.reply_to_reserve_later(reply_to_reserve))


def reserve_with_timeout(session: BeanstalkSession, timeout: int) -> None:
    """Reserve the first ready job of the watched tubes; wait ``timeout`` seconds for it, or not at all if it is 0."""
    session.become_worker()
    callback = session.reply_to_reserve_later(reply_to_reserve)
    session.gateway.reserving.reserve(session.client, timeout, callback)


def reserve_job(session: BeanstalkSession, job_id: int) -> None:
    """Reserve a job by its id."""
    if is_possible(session, job_id):
        callback = session.reply_before_others(partial(reply_to_reserve_job, session))
        session.gateway.reserving.reserve_job(session.client, job_id, callback)


def delete(session: BeanstalkSession, job_id: int) -> None:
    """Delete a job that this client has reserved, or that no client has."""
    if is_possible(session, job_id):
        session.gateway.ends.delete(session.client, job_id, session.reply_later(if_found(replies.DELETED)))


def release(session: BeanstalkSession, job_id: int, priority: int, delay: int) -> None:
    """Release a reserved job, with a new priority and delay."""
    priority = to_task_priority(priority)
    callback = session.reply_later(REPLIES_TO_ENDS.__getitem__)
    session.gateway.ends.release(session.client, job_id, callback, priority=priority, delay=delay)


def bury(session: BeanstalkSession, job_id: int, priority: int) -> None:
    """Bury a reserved job, with a new priority."""
    callback = session.reply_later(REPLIES_TO_ENDS.__getitem__)
    session.gateway.ends.bury(session.client, job_id, to_task_priority(priority), callback)


def touch(session: BeanstalkSession, job_id: int) -> None:
    """Renew the deadline of a reservation."""
    session.gateway.reserving.touch(session.client, job_id, session.reply_later(if_found(replies.TOUCHED)))


def watch(session: BeanstalkSession, tube: str) -> None:
    """Add a tube to the watched ones."""
    if tube not in session.watched:
        session.gateway.tubes.watch(tube)
        session.watched.append(tube)
        session.client.watched = tuple(session.watched)
    session.replies.add(replies.watching(len(session.watched)))


def ignore(session: BeanstalkSession, tube: str) -> None:
    """Remove a tube from the watched ones."""
    watched = session.watched
    if tube in watched:
        if len(watched) == 1:
            session.replies.add(replies.NOT_IGNORED)
            return
        watched[watched.index(tube)] = watched[-1]  # beanstalkd fills the gap with the last one
        watched.pop()
        session.client.watched = tuple(watched)
        session.gateway.tubes.ignore(tube)
    session.replies.add(replies.watching(len(watched)))


# ---------------------------------------------------------------- everyone


def peek(session: BeanstalkSession, job_id: int) -> None:
    """Return a job by its id, without reserving it."""
    if is_possible(session, job_id):
        session.query(reply_to_peek, statistics.peek, job_id)


def peek_ready(session: BeanstalkSession) -> None:
    """Return the job of the used tube that would be reserved next."""
    session.query(reply_to_peek, statistics.peek_ready, session.used)


def peek_delayed(session: BeanstalkSession) -> None:
    """Return the delayed job of the used tube whose delay ends first."""
    session.query(reply_to_peek, statistics.peek_delayed, session.used)


def peek_buried(session: BeanstalkSession) -> None:
    """Return the job of the used tube that was buried first."""
    session.query(reply_to_peek, statistics.peek_buried, session.used)


def kick(session: BeanstalkSession, bound: int) -> None:
    """Make up to ``bound`` jobs of the used tube ready: buried ones, or delayed ones if there are no buried ones."""
    session.gateway.ready.kick(session.client, session.used, bound, session.reply_before_others(replies.kicked))


def kick_job(session: BeanstalkSession, job_id: int) -> None:
    """Make a buried or delayed job ready."""
    if is_possible(session, job_id):
        session.gateway.ready.kick_job(session.client, job_id, session.reply_before_others(if_found(replies.KICKED)))


def stats_job(session: BeanstalkSession, job_id: int) -> None:
    """Return the statistics of a job."""
    if is_possible(session, job_id):
        session.query(reply_to_stats_job, statistics.job_statistics, job_id)


def stats_tube(session: BeanstalkSession, tube: str) -> None:
    """Return the statistics of a tube."""
    make_reply = partial(reply_to_stats_tube, session.gateway, tube)
    session.query_before_others(make_reply, read_tube, session.gateway.tubes.table_counts, tube)


def stats(session: BeanstalkSession) -> None:
    """Return the statistics of the server."""
    make_reply = partial(reply_to_stats, session.gateway)
    session.query_before_others(make_reply, read_server, session.gateway.tubes.table_counts)


def list_tubes(session: BeanstalkSession) -> None:
    """Return the names of all tubes."""
    session.query_before_others(partial(reply_to_list_tubes, session), statistics.tubes_with_jobs)


def list_tube_used(session: BeanstalkSession) -> None:
    """Return the name of the used tube."""
    session.replies.add(replies.using(session.used))


def list_tubes_watched(session: BeanstalkSession) -> None:
    """Return the names of the watched tubes."""
    session.replies.add(replies.ok(tube_list(session.watched)))


def quit_(session: BeanstalkSession) -> None:
    """Close the connection."""
    session.end()


def pause_tube(session: BeanstalkSession, tube: str, seconds: int) -> None:
    """Let no job of a tube be reserved for some seconds; 0 ends a pause."""
    session.gateway.tubes.pause(session.client, tube, seconds, session.reply_later(if_found(replies.PAUSED)))


# ---------------------------------------------------------------- what beanstalkd does not have


def auth(session: BeanstalkSession, token: bytes) -> None:
    """Prove that the client may use the server. This command is not one of beanstalkd."""
    if session.gateway.is_token(token):
        session.authorize()
        session.replies.add(replies.AUTHORIZED)
    else:
        session.replies.add(replies.UNAUTHORIZED)
        session.end()


def invalid(session: BeanstalkSession, reply: bytes) -> None:
    """A command that is refused because of its form: it is answered with ``reply``, and does nothing.

    ``counter`` is the statistic that counts it nevertheless, as beanstalkd does; None for most errors.
    """
    session.replies.add(reply)


HANDLERS: Final[Handlers] = {
    "put": put,
    "use": use,
    "reserve": reserve,
    "reserve-with-timeout": reserve_with_timeout,
    "reserve-job": reserve_job,
    "delete": delete,
    "release": release,
    "bury": bury,
    "touch": touch,
    "watch": watch,
    "ignore": ignore,
    "peek": peek,
    "peek-ready": peek_ready,
    "peek-delayed": peek_delayed,
    "peek-buried": peek_buried,
    "kick": kick,
    "kick-job": kick_job,
    "stats-job": stats_job,
    "stats-tube": stats_tube,
    "stats": stats,
    "list-tubes": list_tubes,
    "list-tube-used": list_tube_used,
    "list-tubes-watched": list_tubes_watched,
    "quit": quit_,
    "pause-tube": pause_tube,
    "auth": auth,
    "invalid": invalid,
}
"""The function of each command; `commands.READERS` has their lines."""


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
