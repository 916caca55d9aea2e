"""A connection that speaks beanstalkd's protocol: its commands are executed in their order, and answered in it.

They are executed in groups where that makes no difference: all that do not wait follow each other into the same batch.
A reserve may wait, so only further reserves follow it before it is answered.

What each command does is a function; they stand in the order of the protocol's text, and `HANDLERS` is their table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from peerd.domain.errors import InvalidTask
from peerd.domain.task import NewTask
from peerd.gateway.beanstalk import replies
from peerd.gateway.beanstalk.commands import COUNTERS, TOO_BIG, Command, CommandParser, to_task_priority
from peerd.gateway.beanstalk.statistics import (
    read_server,
    read_tube,
    reply_to_stats,
    reply_to_stats_job,
    reply_to_stats_tube,
    tube_list,
)
from peerd.gateway.gateway import Gateway
from peerd.gateway.group_commit import OperationFailed
from peerd.gateway.puts import Admission
from peerd.gateway.reservation_ends import Ending
from peerd.gateway.session import ClientConnection, MakeReply, Place, Session, Unfinished
from peerd.gateway.tubes import DEFAULT_TUBE
from peerd.gateway.waiting import Reservation, ReserveEnd
from peerd.store.enqueue import Enqueued
from peerd.store.jobs import statistics

RESERVES: Final = frozenset({"reserve", "reserve-with-timeout"})
"""Commands that may follow a reserve before it is answered."""
ANSWERED_WITH_JOB: Final = RESERVES | {"reserve-job", "peek", "peek-ready", "peek-delayed", "peek-buried"}
OF_THE_MOMENT: Final = frozenset({"stats", "stats-tube", "list-tubes"})
"""Commands that show what this process knows; neither earlier nor later commands are executed beside them."""


class BeanstalkSession(Session):
    """A connection that speaks the protocol of beanstalkd.

    Args:
        gateway: of the process.
        connection: sends the replies.
    """

    def __init__(self, gateway: Gateway, connection: ClientConnection) -> None:
        super().__init__(gateway, connection)
        self.parser = CommandParser(gateway.settings.max_job_size, require_auth=not self.is_authorized)
        self.used = DEFAULT_TUBE
        self.watched = [DEFAULT_TUBE]
        self._most_reserving = self.account.most_jobs(gateway.settings.max_job_size)
        self._reserving = 0
        self._has_counted_put = False
        """The put whose body is on its way is among the counted commands."""
        self.gateway.tubes.use(DEFAULT_TUBE)
        self.gateway.tubes.watch(DEFAULT_TUBE)

    # ---------------------------------------------------------------- the connection

    @property
    def buffered(self) -> int:
        """Bytes of commands that were not executed yet."""
        return self.parser.buffered + (0 if self._held is None else len(self._held.body))

    @property
    def unfinished(self) -> Unfinished | None:
        """The line or the job that has begun and is not whole."""
        if self.parser.is_within_body:
            return "body"
        return "line" if self.parser.is_within_line else None

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

    def _next_command(self) -> Command | None:
        command = self.parser.next_command()
        if command is None:
            self._count_begun_put()
        return command

    def _must_wait(self, command: Command) -> bool:
        if self._reserving and (command.name not in RESERVES or self._reserving >= self._most_reserving):
            return True
        if not self.replies:
            return False
        if command.name in ("use", "watch"):  # an earlier command may delete the last job of the tube
            return self.gateway.tubes.depends_on_jobs(command.arguments[0])
        return command.name in OF_THE_MOMENT

    def _size_of_job(self, command: Command) -> int:
        return self.gateway.settings.max_job_size if command.name in ANSWERED_WITH_JOB else len(command.body)

    def _carry_out(self, command: Command) -> None:
        self._count(command)
        HANDLERS[command.name](self, *command.arguments)

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


# ---------------------------------------------------------------- what each command does


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
        session.query(session.reply_later(reply_to_peek), statistics.peek, job_id)


def peek_in_tube(find: Callable[..., tuple[int, bytes] | None], session: BeanstalkSession) -> None:
    """Return the first job of the used tube in one state, without reserving it."""
    session.query(session.reply_later(reply_to_peek), find, session.used)


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
        session.query(session.reply_later(reply_to_stats_job), statistics.job_statistics, job_id)


def stats_tube(session: BeanstalkSession, tube: str) -> None:
    """Return the statistics of a tube."""
    reply = session.reply_before_others(partial(reply_to_stats_tube, session.gateway, tube))
    session.query(reply, read_tube, session.gateway.tubes.table_counts, tube)


def stats(session: BeanstalkSession) -> None:
    """Return the statistics of the server."""
    reply = session.reply_before_others(partial(reply_to_stats, session.gateway))
    session.query(reply, read_server, session.gateway.tubes.table_counts)


def list_tubes(session: BeanstalkSession) -> None:
    """Return the names of all tubes."""
    session.query(session.reply_before_others(partial(reply_to_list_tubes, session)), statistics.tubes_with_jobs)


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


HANDLERS: Final[Mapping[str, Callable[..., None]]] = {
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
    "peek-ready": partial(peek_in_tube, statistics.peek_ready),
    "peek-delayed": partial(peek_in_tube, statistics.peek_delayed),
    "peek-buried": partial(peek_in_tube, statistics.peek_buried),
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
"""The function of each command, which is called with the session and the arguments; `READERS` has their lines."""


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


def reply_to_put(result: Enqueued | Admission) -> bytes:
    return replies.inserted(result.id) if isinstance(result, Enqueued) else replies.OUT_OF_MEMORY


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
