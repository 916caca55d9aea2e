"""Comparing every row of the database with the model, and taking over the exact moments that the database wrote."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import datetime
from functools import cached_property
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from peerd.domain.lifecycle import Status
from peerd.store.connection.database import Database
from peerd.store.schema.tables import attempts, nodes, queues, tasks, unique_keys
from tests.model.reference.state import ModelAttempt, ModelKey, ModelNode, ModelQueue, ModelState, ModelTask

NEAR: Final = 60.0
"""Seconds between the moment that a rule names and the one that the database wrote; rules' moments are far apart."""
CONTAINED: Final = frozenset({"error", "cause"})
"""Texts for people, of which the model knows a part."""

Rows = dict[Any, Any]


class Mismatch(AssertionError):
    """The database holds something else than the rules say."""


@dataclass(frozen=True)
class ComparedTable:
    table: sa.Table
    row: type
    key: Callable[[Any], Any]
    of: Callable[[ModelState], Mapping[Any, Any]]

    @cached_property
    def columns(self) -> tuple[str, ...]:
        return tuple(one.name for one in fields(self.row))

    @cached_property
    def select(self) -> sa.Select[Any]:
        return sa.select(*(self.table.c[column] for column in self.columns))


TABLES: Final = (
    ComparedTable(tasks, ModelTask, lambda row: row.id, lambda state: state.tasks),
    ComparedTable(attempts, ModelAttempt, lambda row: (row.task_id, row.lease), lambda state: state.attempts),
    ComparedTable(unique_keys, ModelKey, lambda row: (row.queue, row.unique_key), lambda state: state.keys),
    ComparedTable(nodes, ModelNode, lambda row: row.name, lambda state: state.nodes),
    ComparedTable(queues, ModelQueue, lambda row: row.name, lambda state: state.queues),
)


@dataclass
class Comparison:
    database: Database
    seen: dict[str, Rows] = field(default_factory=dict)

    def compare(self, state: ModelState) -> None:
        """See that each row is what the rules say."""
        found = self.database.read(read_all)
        wrong = [text for kept in TABLES for text in self._differences(kept, state, found[kept.table.name])]
        if wrong:
            raise Mismatch("\n".join(wrong))
        for kept in TABLES:
            take_moments(kept, kept.of(state), found[kept.table.name])
        self.seen = {kept.table.name: {key: replace(row) for key, row in kept.of(state).items()} for kept in TABLES}

    def _differences(self, kept: ComparedTable, state: ModelState, found: Rows) -> Iterable[str]:
        wanted, before, name = kept.of(state), self.seen.get(kept.table.name, {}), kept.table.name
        for key in sorted(wanted.keys() - found.keys()):
            yield f"{name} {key} is gone, and should be {wanted[key]}"
        for key in sorted(found.keys() - wanted.keys()):
            yield f"{name} {key} is there, and should not be: {found[key]}"
        for key in sorted(wanted.keys() & found.keys()):
            earlier = before.get(key)
            for column in kept.columns:
                want, got = getattr(wanted[key], column), getattr(found[key], column)
                unchanged = earlier is not None and getattr(earlier, column) == want
                if not (_is_free(wanted[key], column) or _agree(column, want, got, exactly=unchanged)):
                    yield f"{name} {key}: {column} is {got!r}, and should be {want!r}"


def read_all(connection: Connection) -> dict[str, Rows]:
    found = {kept: [kept.row(**row) for row in connection.execute(kept.select).mappings()] for kept in TABLES}
    return {kept.table.name: {kept.key(row): row for row in rows} for kept, rows in found.items()}


def take_moments(kept: ComparedTable, wanted: Mapping[Any, Any], found: Rows) -> None:
    """Let the model's moments be exactly those of the database: which of two is earlier decides a claim's order."""
    for key, row in wanted.items():
        for column in kept.columns:
            if isinstance(getattr(row, column), datetime):
                setattr(row, column, getattr(found[key], column))


def _is_free(wanted: object, column: str) -> bool:
    if column != "claim_token" or not isinstance(wanted, ModelTask):
        return False
    return wanted.status is not Status.WORKING or wanted.deadline_at is not None


def _agree(column: str, want: object, got: object, *, exactly: bool) -> bool:
    match want, got:
        case datetime(), datetime():
            return want == got if exactly else abs((want - got).total_seconds()) < NEAR
        case str(), str() if column in CONTAINED:
            return want in got
        case _:
            return want == got
