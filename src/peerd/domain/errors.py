"""The errors of peerd: one tree. Each error builds its text from its data: the cause, then the remedy.

An error keeps what it was made with in attributes of the same names: a server sends them, and its client makes the same
error from them.
"""

from __future__ import annotations

from peerd.domain.quoting import quoted


class PeerdError(Exception):
    """The root of all errors that peerd raises on purpose."""


class InvalidField(PeerdError):
    """`field` is the option, column or key at fault; `problem` says what is wrong, and what is allowed."""

    def __init__(self, field: str, problem: str) -> None:
        self.field = field
        self.problem = problem
        super().__init__(f"{field}: {problem}")


class InvalidTask(InvalidField, ValueError):
    """A task that cannot be enqueued; nothing was written. `field` is at fault, `problem` says why."""


class InvalidSchedule(InvalidField, ValueError):
    """A wrong definition of a schedule. `field` is at fault, `problem` says why."""


class InvalidLimit(InvalidField, ValueError):
    """A wrong limit; nothing was written. `field` is at fault, `problem` says why."""


class InvalidFilter(InvalidField, ValueError):
    """A filter, a name, an id or a cursor that nothing can have. `field` is at fault, `problem` says why."""


class InvalidAccess(InvalidField, ValueError):
    """A wrong name, password, role, right or time of a user or a token; nothing was written. `field` is at fault."""


class InvalidArguments(PeerdError, TypeError):
    """Arguments, or a body, do not fit the signature of `handler`. `problem` names the argument and the fault."""

    def __init__(self, handler: str, problem: str) -> None:
        self.handler = handler
        self.problem = problem
        super().__init__(f"{handler}: {problem}")


class ScheduleNotFound(PeerdError, LookupError):
    """No node ever had a schedule of this name."""

    def __init__(self, name: str, known: list[str]) -> None:
        self.name = name
        self.known = known
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


class BulkActionNotFound(PeerdError, LookupError):
    """No bulk action has this id: it never existed, or was purged."""

    def __init__(self, bulk_id: int) -> None:
        self.bulk_id = bulk_id
        super().__init__(f"there is no bulk action {quoted(bulk_id)}: it was purged, or never existed")


class BulkActionHasEnded(PeerdError):
    """A bulk action that has ended can be neither paused, nor resumed, nor canceled."""

    def __init__(self, bulk_id: int, state: str) -> None:
        self.bulk_id = bulk_id
        self.state = str(state)
        super().__init__(f"bulk action {bulk_id} has ended: it is {state}; create another one")


class TooManyLogStreams(PeerdError):
    """A web process has as many streams of log lines as it may have, or as many of one actor."""

    def __init__(self, most: int) -> None:
        self.most = most
        text = f"this web process has {most} streams of log lines, or half of them are of one actor"
        super().__init__(f"{text}; close one, or read pages instead")


class NodeNotFound(PeerdError, LookupError):
    """No node has this name."""

    def __init__(self, name: str, known: list[str]) -> None:
        self.name = name
        self.known = known
        super().__init__(f"there is no node {quoted(name)}; known are: {', '.join(known) or 'none yet'}")


class QueueNotFound(PeerdError, LookupError):
    """A queue has no task, and no process has ever served it. `known` has the others, the nearest first."""

    def __init__(self, name: str, known: list[str]) -> None:
        self.name = name
        self.known = known
        names = ", ".join(known) or "none yet"
        super().__init__(f"there is no queue {quoted(name)}; known are, the nearest first: {names}")


class NodeStillAlive(PeerdError):
    """The row of a node cannot be removed while the node sends heartbeats."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(
            f"node {quoted(name)} is alive: its last heartbeat is less than a minute old; stop it first (peerd stop)"
        )


class NodeHasPinnedTasks(PeerdError):
    """The row of a node cannot be removed while `count` unfinished tasks may run on that node only."""

    def __init__(self, name: str, count: int) -> None:
        self.name = name
        self.count = count
        tasks = "1 unfinished task is" if count == 1 else f"{count} unfinished tasks are"
        super().__init__(
            f"{tasks} pinned to node {quoted(name)}; free them first (peerd tasks move --node {name} --to-any)"
        )


class NodeUnreachable(PeerdError):
    """A node has not taken a request: it does not run, or does not answer. Nothing was done there, and nothing will."""

    def __init__(self, name: str, problem: str) -> None:
        self.name = name
        self.problem = problem
        super().__init__(f"node {quoted(name)} cannot be reached: {problem}")


class NodeRequestFailed(PeerdError):
    """A node has taken a request and could not carry it out. `error` is its answer."""

    def __init__(self, name: str, command: str, error: str) -> None:
        self.name = name
        self.command = command
        self.error = error
        super().__init__(f"{command} on node {quoted(name)}: {error}")


class NodeRequestUnfinished(PeerdError, TimeoutError):
    """A node has taken a request, and has not ended it in the time of the caller; it goes on there."""

    def __init__(self, name: str, command: str, request_id: int) -> None:
        self.name = name
        self.command = command
        self.request_id = request_id
        super().__init__(
            f"{command} on node {quoted(name)} has not ended in time, and goes on there: it is request {request_id}; "
            "its end can be read for a day (client.nodes.get_request, GET /nodes/requests/ID)"
        )


class NodeRequestNotFound(PeerdError, LookupError):
    """No request to a node has this id: it never existed, or was purged."""

    def __init__(self, request_id: int) -> None:
        self.request_id = request_id
        super().__init__(f"there is no request {quoted(request_id)}: it was purged after a day, or never existed")


class TaskNotRunning(PeerdError):
    """What only a running task has was asked of another one. `problem` says what it does instead."""

    def __init__(self, task_id: int, problem: str) -> None:
        self.task_id = task_id
        self.problem = problem
        super().__init__(f"task {task_id} has no stack: {problem}")


class ScheduleNotStored(PeerdError):
    """A schedule was to be deleted that a node has from its peerd.toml, or from its code."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(
            f"schedule {quoted(name)} was not created at run time: remove it from peerd.toml and reload, "
            f"or disable it (peerd schedules disable {name})"
        )


class ScheduleNameTaken(PeerdError):
    """A schedule of this name exists. `holder` says where it comes from."""

    def __init__(self, name: str, holder: str) -> None:
        self.name = name
        self.holder = holder
        super().__init__(
            f"there is a schedule {quoted(name)} already, {holder}: choose another name, or remove that one"
        )


class NodeNotRunning(PeerdError):
    """The node of a process is not registered: its agent has not started, or has ended."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(f"node {name!r} is not registered; start its processes with `peerd up`")


class NodeNameTaken(PeerdError):
    """Another live incarnation sends heartbeats under this node's name."""

    def __init__(self, name: str, address: str | None) -> None:
        self.name = name
        where = f" (at {address})" if address else ""
        super().__init__(
            f"a node named {name!r} is alive already{where}: stop it, or give this one another name "
            "([node] name in peerd.toml, or PEERD_NODE_NAME)"
        )


class NodeReplaced(PeerdError):
    """Another incarnation has registered under this node's name; this one must stop."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(
            f"another node registered as {name!r} while this one was silent, so this one stops. "
            "If both are meant to run, give one of them another name"
        )


class UniqueKeyTaken(PeerdError):
    """A finished task cannot run again, because a younger task has its unique key."""

    def __init__(self, task_id: int, key: str, holder: int) -> None:
        self.task_id = task_id
        self.key = key
        self.holder = holder
        super().__init__(
            f"task {task_id} cannot run again: its unique key {key!r} now belongs to task {holder}; "
            "wait for that task, or cancel it"
        )


class IdempotencyKeyReused(PeerdError):
    """A request with this key was another one."""

    def __init__(self, key: str) -> None:
        self.key = key
        super().__init__(
            f"the idempotency key {quoted(key)} came with another request before; choose a new key for this one"
        )


class SchemaMissing(PeerdError):
    """The database has no tables of peerd, or older ones than this version needs."""

    def __init__(self, found: str | None, wanted: str) -> None:
        self.found = found
        self.wanted = wanted
        super().__init__(self._text())

    def _text(self) -> str:
        state = f"is at revision {self.found}" if self.found else "has no tables of peerd yet"
        return f"the database {state}, this version needs {self.wanted}: run `peerd migrate`"


class SchemaTooNew(SchemaMissing):
    """A newer version of peerd has migrated the database, and has not marked it as usable by this one."""

    def _text(self) -> str:
        newer = f"is at revision {self.found}, which this version of peerd does not know (it needs {self.wanted})"
        return f"the database {newer}: install the version that migrated it, or a newer one"


class NodesTooOld(PeerdError):
    """The migration is refused while nodes run code older than the revision `oldest`, which could not work with it."""

    def __init__(self, names: list[str], revision: str, oldest: str) -> None:
        self.names = names
        are, them = ("is", "it") if len(names) == 1 else ("are", "them")
        super().__init__(
            f"revision {revision} takes away what older nodes need, and {', '.join(names)} {are} running with code "
            f"from before revision {oldest}: upgrade or stop {them}, then run `peerd migrate` again "
            "(a node that was killed counts as running for a minute)"
        )


class UnsupportedDatabase(PeerdError):
    """A database, or a version of it, that peerd cannot work with, or whose driver is missing."""


class DatabaseUnavailable(PeerdError):
    """The database does not answer. A write may or may not have been done. `reason` is the driver's text."""

    def __init__(self, reason: str, text: str | None = None) -> None:
        self.reason = reason
        self.text = text
        super().__init__(text or f"the database does not answer: {reason}")


class DatabaseRefused(DatabaseUnavailable):
    """The database answers, and refuses. It counts as unavailable, because the cause can be repaired meanwhile."""

    def __init__(self, reason: str, remedy: str) -> None:
        super().__init__(reason, f"the database refuses this: {reason}; {remedy}")
        self.remedy = remedy


class DatabaseBusy(DatabaseUnavailable):
    """The database rolled the statement back until the time for retries was over. Nothing was written."""

    def __init__(self, reason: str, seconds: float) -> None:
        self.seconds = seconds
        super().__init__(
            reason,
            f"the database rolled this back for {seconds:.0f} s, because of other transactions: {reason}; "
            "find the transaction that stays open and holds locks",
        )


class RowLocked(PeerdError):
    """A statement met a row that another transaction has locked, and did not wait for it. It wrote nothing."""

    def __init__(self, reason: str, seconds: float) -> None:
        self.reason = reason
        self.seconds = seconds
        super().__init__(
            f"another transaction has locked a row for {seconds:.0f} s: {reason}; try again, or find the transaction "
            "that stays open and holds locks"
        )


class MessageError(PeerdError):
    """The root of the errors of messages between the processes of a node."""


class InvalidMessage(MessageError, ValueError):
    """A message that cannot be sent; nothing was sent."""

    def __init__(self, action: object, problem: str) -> None:
        self.action = action
        super().__init__(f"the message {quoted(action)} cannot be sent: {problem}")


class MessageTooLarge(InvalidMessage):
    """A message has more bytes than allowed; nothing was sent."""

    def __init__(self, action: object, size: int, allowed: int) -> None:
        self.size = size
        super().__init__(
            action,
            f"it has {size} bytes of JSON, and {allowed} are allowed; "
            "put what is large into a file or the database, and send where it is",
        )


class MessengerFull(MessageError):
    """The process has sent `count` messages of `size` bytes that are not delivered yet; this one was not sent."""

    def __init__(self, action: str, count: int, size: int) -> None:
        self.action = action
        super().__init__(
            f"the message {quoted(action)} was not sent: {count} messages ({size} bytes) of this process are not "
            "delivered yet; await what the send methods return before you send more"
        )


class Undeliverable(MessageError):
    """A message did not reach all of its recipients, but `delivered` processes. `reason` is the cause."""

    def __init__(self, action: str, target: str, reason: str, delivered: int = 0) -> None:
        self.action = action
        self.delivered = delivered
        self.reason = reason
        reached = f"; it reached {delivered}" if delivered else ""
        super().__init__(f"the message {quoted(action)} for {target} was not delivered: {reason}{reached}")


class NoReply(MessageError, TimeoutError):
    """A request was not answered: its time is over, or the recipient died."""

    def __init__(self, action: str, target: str, reason: str) -> None:
        self.action = action
        self.reason = reason
        super().__init__(f"no reply to the request {quoted(action)} from {target}: {reason}")


class RequestFailed(MessageError):
    """The recipient of a request could not answer: its handler raised, there is none, or its answer cannot be sent."""

    def __init__(self, action: str, target: str, error: str) -> None:
        self.action = action
        self.error = error
        super().__init__(f"the request {quoted(action)} to {target} failed there: {error}")


class ProcessStopping(PeerdError):
    """The background work `name` was not started, because its process stops."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(f"{name} was not started: the process stops; await it yourself if it must still be done")


class NotPermitted(PeerdError, PermissionError):
    """The actor must not do this: it lacks a right, or is restricted to other queues."""

    def __init__(self, actor: str, operation: str, reason: str) -> None:
        self.actor = actor
        self.operation = operation
        self.reason = reason
        super().__init__(f"{quoted(actor)} must not do {operation}: {reason}")


class UserNotFound(PeerdError, LookupError):
    """No user has this name."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(f"there is no user {quoted(name)}; see peerd users list")


class UserExists(PeerdError):
    """A user has this name already."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(f"there is a user {quoted(name)} already: choose another name, or change that user")


class LastAdmin(PeerdError):
    """Without this user, no user could manage the others."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(
            f"{quoted(name)} is the last enabled admin with a password: name another one first, or use the command line"
        )


class TokenNotFound(PeerdError, LookupError):
    """No token has this id."""

    def __init__(self, token_id: int) -> None:
        self.token_id = token_id
        super().__init__(f"there is no token {quoted(token_id)}; see peerd tokens list")


class PackageMissing(PeerdError, ImportError):
    """A package of an extra is needed, and not installed."""

    def __init__(self, package: str, extra: str) -> None:
        self.package = package
        super().__init__(f"this needs {package}: pip install 'peerd[{extra}]'")
