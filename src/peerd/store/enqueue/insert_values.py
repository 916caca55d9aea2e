"""What an INSERT of tasks says: of each column the value, as the driver takes it, and nothing of what is a default."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from operator import attrgetter
from typing import Any, Final, NamedTuple

import sqlalchemy as sa
from sqlalchemy.engine import Dialect

from peerd.domain.task import DEFAULT_PRIORITY, NewTask
from peerd.store.schema.types import Instant

INSTANT: Final = Instant()
DEFAULTS: Final[Mapping[str, Any]] = {
    "name": "",
    "body": None,
    "body_bytes": None,
    "priority": DEFAULT_PRIORITY,
    "max_attempts": None,
    "node_id": None,
    "timeout": None,
    "unique_key": None,
    "limit_key": None,
    "trace_context": None,
}
"""What stands in a column that an insert does not name."""
TIME_PARAMETERS: Final = {
    "starts_in": sa.Double(),
    "starts_at": INSTANT,
    "finishes_in": sa.Double(),
    "finishes_at": INSTANT,
}
"""Values of which columns are made, and their types."""
TASK_ATTRIBUTES: Final = {
    "node_id": "node",
    "starts_in": "start_in",
    "starts_at": "start_at",
    "finishes_in": "finish_in",
    "finishes_at": "finish_at",
}
"""What a task calls the value of a column, where it has another name for it."""
GETTERS: Final = {name: attrgetter(TASK_ATTRIBUTES.get(name, name)) for name in ("queue", *DEFAULTS, *TIME_PARAMETERS)}

Names = tuple[str, ...]


class InsertValues(NamedTuple):
    """Those of many rows, by their names: what all have in common, and in what they differ.

    What all leave to its default is in neither.
    """

    number: int
    common: dict[str, Any]
    differing: dict[str, Sequence[Any]]

    @property
    def names(self) -> Names:
        """Of all of them, in an order that is always the same."""
        return tuple(name for name in GETTERS if name in self.common or name in self.differing)


def values_of_one(new: NewTask, node_ids: Mapping[str, int], dialect: Dialect) -> dict[str, Any]:
    """The values of one row, by their names."""
    given = {name: value for name, field in GETTERS.items() if (value := field(new)) != DEFAULTS.get(name)}
    return {name: _for_driver(name, value, node_ids, dialect) for name, value in given.items()}


def values_of_many(new: Sequence[NewTask], node_ids: Mapping[str, int], dialect: Dialect) -> InsertValues:
    """The values of many rows, which give the same times."""
    common: dict[str, Any] = {}
    differing: dict[str, Sequence[Any]] = {}
    for name, field in GETTERS.items():
        column = [field(task) for task in new]
        first = column[0]
        if column.count(first) == len(column):
            if first != DEFAULTS.get(name):
                common[name] = _for_driver(name, first, node_ids, dialect)
        else:
            differing[name] = [_for_driver(name, value, node_ids, dialect) for value in column]
    return InsertValues(len(new), common, differing)


def _for_driver(name: str, value: Any, node_ids: Mapping[str, int], dialect: Dialect) -> Any:
    if value is None or name not in TASK_ATTRIBUTES:
        return value
    if name == "node_id":
        return node_ids[value]
    return INSTANT.process_bind_param(value, dialect) if isinstance(value, datetime) else value
