"""The guard of every operation: the actor's right, its scope, the query, and the entry of the audit log.

The entry is written in the transaction of the operation: both are committed, or neither. It has the columns that the
operation has changed, which are read in that transaction. What is not permitted is written by itself, so often that a
program that repeats what it must not do cannot fill the log.
"""

from __future__ import annotations

import inspect
import json
import time
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Final, NamedTuple

import msgspec
from sqlalchemy.engine import Connection

from peerd.domain.access import Actor, Right
from peerd.domain.errors import NotPermitted
from peerd.domain.quoting import ALWAYS_MASKED, Masker, quoted
from peerd.domain.task import NAME_LIMIT, Call
from peerd.operate.queries import AuditTarget, Query
from peerd.runtime.concurrency import ForkSafeLock
from peerd.store import audit
from peerd.store.audit import NewAuditEntry, State, write_entry

MOST_CHARACTERS: Final = 4_000
"""Characters of the JSON text of arguments, and of a state."""
MOST_ITEMS: Final = 20
"""Items of a list in arguments."""
MOST_LEVELS: Final = 50
"""Levels of lists and objects in arguments; Python's stack ends at fewer than a body may have."""
WINDOW: Final = 60.0
"""Seconds."""
MOST_IN_WINDOW: Final = 10
"""Entries of one actor and one operation."""
MOST_COUNTED: Final = 10_000
"""Pairs of an actor and an operation that are counted; of the oldest one the count is forgotten."""


class OperationCall(NamedTuple):
    """A call of an operation by an actor."""

    operation: str
    actor: Actor
    masker: Masker
    arguments: Mapping[str, object]
    refusals: RefusalLimit

    def guarded(
        self, make_query: Callable[[], Query[Any]], needs: Right | None, *, in_queues: bool, audited: bool
    ) -> Query[Any]:
        """The query of a permitted call, which writes its entry if it changes something; or the query of a refusal.

        Args:
            make_query: checks the arguments, and makes the query of the operation.
            needs: the right; None: to view for what only reads, to operate for the rest.
            in_queues: whether the operation keeps to the queues of an actor that is restricted.
            audited: whether it has an entry if it changes something.

        Raises:
            NotPermitted: the call is refused, and so often that no more entries are written.
        """
        try:
            if needs is not None:
                self.require(needs, in_queues=in_queues)
            query = make_query()
            right = needs or (Right.VIEW if query.method == "read" else Right.OPERATE)
            self.require(right, in_queues=in_queues)
        except NotPermitted as error:
            return self.refused(error)
        if audited and query.method != "read" and right is not Right.VIEW:
            query.audited_by(self._audited)
        return query

    def require(self, right: Right, *, in_queues: bool) -> None:
        """Check that the actor has the right, and may see all queues where the operation is not about some.

        Raises:
            NotPermitted: it may not do this.
        """
        if not self.actor.may(right):
            raise NotPermitted(self.actor.name, self.operation, f"it needs the right {right}")
        if self.actor.queues is not None and not in_queues:
            raise NotPermitted(self.actor.name, self.operation, "it is not about the queues that the actor may see")

    def refused(self, error: NotPermitted) -> Query[Any]:
        """Writes the entry of what is not permitted, and raises the error; raises it here where there are too many."""
        left_out = self.refusals.admit(self.actor, self.operation, time.monotonic())
        if left_out is None:
            raise error
        problem = f"{error} ({left_out:,} more refusals before it have no entry)" if left_out else str(error)
        entry = msgspec.structs.replace(self._entry(), outcome=audit.REFUSED, problem=problem)
        return Query("run", write_entry, entry).then_raise(error)

    def _audited(self, act: Callable[[Connection], Any], target: AuditTarget | None) -> Callable[[Connection], Any]:
        """The operation, and its entry."""

        def act_and_audit(connection: Connection) -> Any:
            read = None if target is None else target.read
            before = None if read is None else read(connection)
            result = act(connection)
            after = None if read is None else read(connection)
            name = None if target is None else target.name
            if target is not None and target.describe is not None:
                name, after = target.describe(result)
            write_entry(connection, self._entry(target, name, *_changes(before, after)))
            return result

        return act_and_audit

    def _entry(
        self,
        target: AuditTarget | None = None,
        name: str | None = None,
        before: State | None = None,
        after: State | None = None,
    ) -> NewAuditEntry:
        masker = Masker([*ALWAYS_MASKED, *self.masker.keys])
        return NewAuditEntry(
            actor_kind=self.actor.kind,
            actor=self.actor.name[:NAME_LIMIT],
            address=self.actor.address,
            way=self.actor.way,
            operation=self.operation,
            target_kind=None if target is None else target.kind,
            target=None if name is None else name[:NAME_LIMIT],
            arguments=_to_json(self.arguments, masker),
            state_before=None if before is None else _to_json(before, masker),
            state_after=None if after is None else _to_json(after, masker),
        )


class _Count(msgspec.Struct):
    """The refusals of an actor and an operation: entries since the beginning of the window, and what was left out."""

    began: float
    entries: int = 0
    left_out: int = 0


class RefusalLimit:
    """Limits the entries of a process.

    >>> limit, eve = RefusalLimit(), Actor(name="eve")
    >>> [limit.admit(eve, "tasks.cancel", now=0.5 * number) for number in range(12)]
    [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, None, None]
    >>> limit.admit(eve, "tasks.retry", now=6.0), limit.admit(eve, "tasks.cancel", now=61.0)
    (0, 2)
    """

    def __init__(self) -> None:
        self._counts: dict[tuple[str, str, str], _Count] = {}
        self._lock = ForkSafeLock()

    def admit(self, actor: Actor, operation: str, now: float) -> int | None:
        """Count a refusal.

        Args:
            actor: what it is of.
            operation: such as ``tasks.cancel``.
            now: seconds of a clock that never goes back.

        Returns:
            how many refusals before it were left out, for its entry; None: it gets no entry.
        """
        key = (actor.kind, actor.name, operation)
        with self._lock:
            count = self._counts.get(key)
            if count is None or now - count.began >= WINDOW:
                left_out = 0 if count is None else count.left_out
                self._counts.pop(key, None)
                if len(self._counts) >= MOST_COUNTED:
                    del self._counts[next(iter(self._counts))]
                count = self._counts[key] = _Count(now, left_out=left_out)
            if count.entries >= MOST_IN_WINDOW:
                count.left_out += 1
                return None
            count.entries += 1
            left_out, count.left_out = count.left_out, 0
            return left_out


def named_arguments(signature: inspect.Signature, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a call by their names, without those that are None or unset."""
    bound = signature.bind(None, *args, **kwargs).arguments
    named: dict[str, Any] = {}
    for parameter in list(signature.parameters.values())[1:]:
        value = bound.get(parameter.name)
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:
            named |= value or {}
        elif value is not None and value is not msgspec.UNSET:
            named[parameter.name] = value
    return named


def _changes(before: State | None, after: State | None) -> tuple[State | None, State | None]:
    """The columns that have changed; all of what is new or gone.

    >>> _changes({"status": "dead", "queue": "video"}, {"status": "pending", "queue": "video"})
    ({'status': 'dead'}, {'status': 'pending'})
    """
    if before is None or after is None:
        return before, after
    changed = [column for column in after if before.get(column) != after[column]]
    return {column: before.get(column) for column in changed}, {column: after[column] for column in changed}


def _to_json(value: object, masker: Masker) -> str:
    plain = masker.value(_to_plain(value))
    text = _encode(plain)
    return text if len(text) <= MOST_CHARACTERS else _encode({"truncated": text[:MOST_CHARACTERS]})


def _encode(plain: object) -> str:
    try:
        return msgspec.json.encode(plain).decode()
    except (UnicodeEncodeError, OverflowError):  # a surrogate, or a number of more than 64 bits
        return json.dumps(plain)


def _to_plain(value: object, levels: int = MOST_LEVELS) -> Any:  # noqa: PLR0911 - one line for each kind of value
    """A value made of what JSON has, bounded."""
    match value:
        case None | bool() | int() | float():
            return value
        case str():
            return value[: 4 * MOST_CHARACTERS]
        case bytes() | bytearray() | memoryview():
            return f"{len(value)} bytes"
        case datetime():
            return value.isoformat()
        case Mapping() | list() | tuple() if not levels:
            return "…"
        case Call():
            return {"queue": value.queue, "name": value.name, "body": _to_plain(value.body)}
        case Mapping():
            return {str(key): _to_plain(inner, levels - 1) for key, inner in value.items()}
        case msgspec.Struct():
            tag = value.__struct_config__.tag
            kind = {} if tag is None else {"type": str(tag)}
            return kind | {field: _to_plain(getattr(value, field), levels) for field in value.__struct_fields__}
        case list() | tuple() | set() | frozenset():
            items = sorted(value) if isinstance(value, set | frozenset) else value
            more = [f"… and {len(items) - MOST_ITEMS} more"] if len(items) > MOST_ITEMS else []
            return [*(_to_plain(item, levels - 1) for item in items[:MOST_ITEMS]), *more]
        case _:
            return quoted(value)
