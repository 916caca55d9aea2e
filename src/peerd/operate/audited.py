"""Whether an actor may do an operation, and the entry of the audit log for it.

The entry is written in the transaction of the operation: both are committed, or neither. It has the columns that the
operation has changed, which are read in that transaction. What is not permitted is written by itself.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Final, NamedTuple

import msgspec
from sqlalchemy.engine import Connection

from peerd.domain.access import Actor, Right
from peerd.domain.errors import NotPermitted
from peerd.domain.quoting import ALWAYS_MASKED, Masker, quoted
from peerd.domain.task import NAME_LIMIT, Call
from peerd.store import audit
from peerd.store.audit import NewAuditEntry, State, write_entry

MOST_CHARACTERS: Final = 4_000
"""Of the JSON text of arguments, and of a state."""
MOST_ITEMS: Final = 20
"""Of a list in arguments."""


class AuditTarget(NamedTuple):
    """What an operation acts on.

    Attributes:
        kind: such as ``task``.
        name: its name or id; None: the result has it.
        read: reads its state; None: the result is its state afterwards.
        describe: the name and the state in the operation's result.
    """

    kind: str
    name: str | None = None
    read: Callable[[Connection], State | None] | None = None
    describe: Callable[[Any], tuple[str, State]] | None = None


class OperationCall(NamedTuple):
    """A call of an operation by an actor."""

    operation: str
    actor: Actor
    masker: Masker
    arguments: Mapping[str, object]

    def require(self, right: Right, *, in_queues: bool) -> None:
        """Check that the actor may do this.

        Args:
            right: what the operation needs.
            in_queues: whether the operation keeps to the queues of an actor that is restricted.

        Raises:
            NotPermitted: it may not.
        """
        if not self.actor.may(right):
            raise NotPermitted(self.actor.name, self.operation, f"it needs the right {right}")
        if self.actor.queues is not None and not in_queues:
            raise NotPermitted(self.actor.name, self.operation, "it is not about the queues that the actor may see")

    def audited(self, act: Callable[[Connection], Any], target: AuditTarget | None) -> Callable[[Connection], Any]:
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

    def refused(self, error: NotPermitted, left_out: int) -> Callable[[Connection], None]:
        """Writes the entry of an operation that is not permitted, with how many before it have none."""
        problem = f"{error} ({left_out:,} more refusals before it have no entry)" if left_out else str(error)
        entry = self._entry(None, None, None, None)
        return lambda connection: write_entry(
            connection, msgspec.structs.replace(entry, outcome=audit.REFUSED, problem=problem)
        )

    def _entry(
        self, target: AuditTarget | None, name: str | None, before: State | None, after: State | None
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


def _to_plain(value: object) -> Any:  # noqa: PLR0911 - one line for each kind of value
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
        case Call():
            return {"queue": value.queue, "name": value.name, "body": _to_plain(value.body)}
        case Mapping():
            return {str(key): _to_plain(inner) for key, inner in value.items()}
        case msgspec.Struct():
            tag = value.__struct_config__.tag
            kind = {} if tag is None else {"type": str(tag)}
            return kind | {field: _to_plain(getattr(value, field)) for field in value.__struct_fields__}
        case list() | tuple() | set() | frozenset():
            items = sorted(value) if isinstance(value, set | frozenset) else value
            more = [f"… and {len(items) - MOST_ITEMS} more"] if len(items) > MOST_ITEMS else []
            return [*map(_to_plain, items[:MOST_ITEMS]), *more]
        case _:
            return quoted(value)
