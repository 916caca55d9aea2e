"""The errors of peerd: one tree, in which each error words itself from its data, with the cause and the remedy."""

from __future__ import annotations

from peerd.domain.quoting import quoted


class PeerdError(Exception):
    """The root of all errors that peerd raises on purpose."""


class InvalidTask(PeerdError, ValueError):
    """A task that may not be enqueued as it is; nothing was written.

    Args:
        field: the option or column at fault.
        problem: what is wrong with it, and what is allowed.
    """

    def __init__(self, field: str, problem: str) -> None:
        self.field = field
        self.problem = problem
        super().__init__(f"{field}: {problem}")


class InvalidArguments(PeerdError, TypeError):
    """Arguments, or a body, that do not fit a handler's signature.

    Args:
        handler: the handler's name.
        problem: which argument, and what is wrong with it.
    """

    def __init__(self, handler: str, problem: str) -> None:
        self.handler = handler
        self.problem = problem
        super().__init__(f"{handler}: {problem}")


class InvalidSchedule(PeerdError, ValueError):
    """A schedule that cannot be kept as it is.

    Args:
        field: the key at fault.
        problem: what is wrong with it, and what is allowed.
    """

    def __init__(self, field: str, problem: str) -> None:
        self.field = field
        self.problem = problem
        super().__init__(f"{field}: {problem}")


class InvalidLimit(PeerdError, ValueError):
    """A limit that cannot be kept as it is; nothing was written.

    Args:
        field: the part of it at fault.
        problem: what is wrong with it, and what is allowed.
    """

    def __init__(self, field: str, problem: str) -> None:
        self.field = field
        self.problem = problem
        super().__init__(f"{field}: {problem}")


class ScheduleNotFound(PeerdError, LookupError):
    """No node ever had a schedule of this name."""

    def __init__(self, name: str, known: list[str]) -> None:
        self.name = name
        super().__init__(f"there is no schedule {quoted(name)}; known are: {', '.join(known) or 'none yet'}")


class RunNotFound(PeerdError, LookupError):
    """No run of a schedule has this id: it never existed, or was purged."""

    def __init__(self, run_id: int) -> None:
        self.run_id = run_id
        super().__init__(f"there is no run {quoted(run_id)}: it was purged, or never existed")


class TaskNotFound(PeerdError, LookupError):
    """No task has this id: it never existed, was deleted, or was purged."""

    def __init__(self, task_id: int) -> None:
        self.task_id = task_id
        super().__init__(f"there is no task {quoted(task_id)}: it was deleted or purged, or never existed")


class NodeNotFound(PeerdError, LookupError):
    """No node has this name."""

    def __init__(self, name: str, known: list[str]) -> None:
        self.name = name
        super().__init__(f"there is no node {quoted(name)}; known are: {', '.join(known) or 'none yet'}")


class NodeStillAlive(PeerdError):
    """A node cannot be forgotten while it beats."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(f"node {quoted(name)} is alive: it has beaten within the last minute; stop it (peerd stop)")


class NodeHasPinnedTasks(PeerdError):
    """A node cannot be forgotten while tasks wait for it.

    Args:
        name: of the node.
        count: unfinished tasks that may run on it only.
    """

    def __init__(self, name: str, count: int) -> None:
        self.name = name
        self.count = count
        tasks = "1 unfinished task is" if count == 1 else f"{count} unfinished tasks are"
        super().__init__(
            f"{tasks} pinned to node {quoted(name)}; free them first (peerd tasks move --node {name} --to-any)"
        )


class NodeNotRunning(PeerdError):
    """A process found that its node is not registered: its agent has not begun, or has left."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(f"node {name!r} is not registered; processes of a node are started by `peerd up`")


class NodeNameTaken(PeerdError):
    """Another live incarnation beats under this node's name."""

    def __init__(self, name: str, address: str | None) -> None:
        self.name = name
        where = f" (at {address})" if address else ""
        super().__init__(
            f"a node named {name!r} is alive already{where}: stop it, or give this one another name "
            "([node] name in peerd.toml, or PEERD_NODE_NAME)"
        )


class NodeReplaced(PeerdError):
    """Another incarnation of this node's name has taken over; this one must leave."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(
            f"another node has registered as {name!r} while this one was silent; this one leaves. "
            "If both were meant to run, give one of them another name"
        )


class UniqueKeyTaken(PeerdError):
    """A finished task cannot be run again, because a younger one has its unique key."""

    def __init__(self, task_id: int, key: str, holder: int) -> None:
        self.task_id = task_id
        self.key = key
        self.holder = holder
        super().__init__(
            f"task {task_id} cannot be run again: its unique key {key!r} now belongs to task {holder}; "
            "wait for that one, or cancel it"
        )


class SchemaMissing(PeerdError):
    """The database has no tables of peerd, or older ones than this version needs."""

    def __init__(self, found: str | None, wanted: str) -> None:
        self.found = found
        self.wanted = wanted
        state = f"is at revision {found}" if found else "has no tables of peerd yet"
        super().__init__(f"the database {state}, this version needs {wanted}: run `peerd migrate`")


class SchemaTooNew(SchemaMissing):
    """The database was migrated by a newer version of peerd than this one, and does not say that this one may go on."""

    def __init__(self, found: str, wanted: str) -> None:
        super().__init__(found, wanted)
        newer = f"the database is at revision {found}, which this version of peerd does not know (it needs {wanted})"
        self.args = (f"{newer}: install the version that migrated it, or a newer one",)


class NodesTooOld(PeerdError):
    """The tables may not be migrated while nodes run whose code could not work with them any more.

    Args:
        names: the nodes.
        revision: the revision that was asked for.
        oldest: the revision that a node's code must know to work with it.
    """

    def __init__(self, names: list[str], revision: str, oldest: str) -> None:
        self.names = names
        are = "is" if len(names) == 1 else "are"
        super().__init__(
            f"revision {revision} takes away what older nodes need, and {', '.join(names)} {are} running with code "
            f"from before revision {oldest}: upgrade or stop {'it' if len(names) == 1 else 'them'}, then run "
            "`peerd migrate` again (one that was killed counts as running for a minute)"
        )


class UnsupportedDatabase(PeerdError):
    """A database, or a version of it, that peerd cannot work with, or whose driver is missing."""


class DatabaseUnavailable(PeerdError):
    """The database does not answer. What was being written may or may not have been written.

    Args:
        reason: what the driver said.
    """

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(f"the database does not answer: {reason}")


class DatabaseConnectionRefused(DatabaseUnavailable):
    """The database answers, and does not let us in. It counts as away, because somebody can mend it meanwhile.

    Args:
        reason: what the driver said.
        remedy: what a person can do.
    """

    def __init__(self, reason: str, remedy: str) -> None:
        super().__init__(reason)
        self.remedy = remedy
        self.args = (f"the database refuses us: {reason}; {remedy}",)


class DatabaseBusy(DatabaseUnavailable):
    """The database undid the work again and again, for the sake of others. Nothing was written.

    Args:
        reason: what the driver said last.
        seconds: how long it was tried.
    """

    def __init__(self, reason: str, seconds: float) -> None:
        super().__init__(reason)
        undone = f"the database undid this for {seconds:.0f} s, for the sake of others: {reason}"
        self.args = (f"{undone}; look for a transaction that stays open, and holds locks",)


class RowLocked(DatabaseBusy):
    """A statement that commits by itself met a row that the transaction of another session holds. Nothing was written.

    Args:
        reason: what the driver said.
        seconds: how long it was waited for.
    """


class MessageError(PeerdError):
    """The root of what can go wrong with messages between the processes of a node."""


class InvalidMessage(MessageError, ValueError):
    """A message that cannot be sent as it is; nothing was sent.

    Args:
        action: of the message.
        problem: what is wrong with it, and what is allowed.
    """

    def __init__(self, action: object, problem: str) -> None:
        self.action = action
        super().__init__(f"the message {quoted(action)} cannot be sent: {problem}")


class MessageTooLarge(InvalidMessage):
    """A message that is larger than one may be; nothing was sent."""

    def __init__(self, action: object, size: int, allowed: int) -> None:
        self.size = size
        super().__init__(
            action,
            f"it has {size} bytes of JSON, and {allowed} are allowed; "
            "put what is large into a file or the database, and send where it is",
        )


class MessengerFull(MessageError):
    """The process has sent more than could be delivered so far; this message was not sent.

    Args:
        action: of the message.
        count: how many wait.
        size: their bytes.
    """

    def __init__(self, action: str, count: int, size: int) -> None:
        self.action = action
        super().__init__(
            f"the message {quoted(action)} was not sent: {count} messages ({size} bytes) of this process wait to be "
            "delivered; await what the send methods return before you send more"
        )


class Undeliverable(MessageError):
    """A message did not reach all whom it was for.

    Args:
        action: of the message.
        target: whom it was for.
        reason: why.
        delivered: how many it has reached all the same.
    """

    def __init__(self, action: str, target: str, reason: str, delivered: int = 0) -> None:
        self.action = action
        self.delivered = delivered
        self.reason = reason
        reached = f"; it reached {delivered}" if delivered else ""
        super().__init__(f"the message {quoted(action)} for {target} was not delivered: {reason}{reached}")


class NoReply(MessageError, TimeoutError):
    """A request was not answered.

    Args:
        action: of the request.
        target: whom it was for.
        reason: why: its time is over, or who had it has died.
    """

    def __init__(self, action: str, target: str, reason: str) -> None:
        self.action = action
        self.reason = reason
        super().__init__(f"no reply to the request {quoted(action)} from {target}: {reason}")


class RequestFailed(MessageError):
    """Who was asked could not answer: a handler raised an exception, there is none, or its answer cannot be sent.

    Args:
        action: of the request.
        target: whom it was for.
        error: what the other process says.
    """

    def __init__(self, action: str, target: str, error: str) -> None:
        self.action = action
        self.error = error
        super().__init__(f"the request {quoted(action)} to {target} failed there: {error}")


class ProcessStopping(PeerdError):
    """Work was given to the background of a process that stops.

    Args:
        name: of the work.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(f"{name} was not begun: the process stops; await it yourself if it must still be done")
