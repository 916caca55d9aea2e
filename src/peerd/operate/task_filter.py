"""Filters of tasks, as clients give them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self, TypedDict

import msgspec

from peerd.domain.column_condition import parse_conditions, parse_status
from peerd.domain.lifecycle import Status
from peerd.operate import validation

MASKED_COLUMNS = frozenset({"body", "body_bytes", "result", "error", "progress_note"})


class TaskFilter(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Conditions on tasks; all of them hold. None is no condition.

    Args:
        queue: of this queue.
        name: of this handler.
        status: of this status.
        node: pinned to the node of this name, or held by it, now or last.
        search: with this text in the body or the error, in any case (on SQLite: of ASCII letters).
        where: comparisons of any column, such as ``"priority>=20"``; see `parse_condition`.
    """

    queue: str | None = None
    name: str | None = None
    status: str | None = None
    node: str | None = None
    search: str | None = None
    where: Sequence[str] = ()

    def checked(self) -> Self:
        """Check the values; raises `InvalidFilter` for what no task can have, and for a wrong condition."""
        for field in ("queue", "name", "node"):
            validation.text_or_none(field, getattr(self, field))
        if self.status is not None:
            parse_status(self.status)
        if self.search is not None:
            validation.search(self.search)
        parse_conditions(self.where)
        return self

    def reads_masked_columns(self) -> bool:
        """Whether it compares columns that may have values which are masked."""
        return self.search is not None or any(one.column in MASKED_COLUMNS for one in parse_conditions(self.where))


class TaskFilterOptions(TypedDict, total=False):
    """The fields of `TaskFilter`."""

    queue: str | None
    name: str | None
    status: Status | str | None
    node: str | None
    search: str | None
    where: Sequence[str]
