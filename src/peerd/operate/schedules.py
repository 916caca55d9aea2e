"""Schedules: what ticks, when, with what outcome; by hand, or not at all."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

import msgspec
from sqlalchemy.engine import Connection

from peerd.domain.errors import InvalidSchedule
from peerd.domain.quoting import quoted
from peerd.domain.schedule import Schedule
from peerd.operate import validation
from peerd.operate.operations import Mode, OperationGroup, Query, operation, read_query, write_query
from peerd.operate.request import json_text
from peerd.store import schedule_runs, schedules
from peerd.store.nodes.nodes import list_nodes
from peerd.store.schedule_runs import ScheduleRun
from peerd.store.schedules import CLUSTER_ROW, ScheduleRow

MAX_RUNS = 10_000
MAX_ARGUMENTS_BYTES = 64 * 1024
"""Bytes of JSON."""


class ScheduleNode(msgspec.Struct, frozen=True, kw_only=True):
    """A node that has a schedule."""

    node: str
    next_at: datetime | None
    """Its own next tick; None where the cluster's counts."""
    is_own: bool
    """Whether it means what the cluster's row says; if not, it fires no tick of a schedule of the cluster."""
    error: str | None
    """Why it cannot keep the schedule."""


class ScheduleState(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule, as the table has it."""

    name: str
    type: str
    definition: Schedule | None
    """None where this version cannot read it."""
    state: str
    """``on``, ``disabled`` (by hand), ``off`` (in peerd.toml), ``error``, ``nowhere`` (no running node has it)."""
    next_at: datetime | None
    last_at: datetime | None
    last_run: ScheduleRun | None
    nodes: list[ScheduleNode]


ScheduleStates = list[ScheduleState]
Runs = list[ScheduleRun]


class ScheduleOperations(OperationGroup[Mode]):
    """``client.schedules``."""

    @operation
    def list(self) -> Query[ScheduleStates]:
        """All schedules that a node has or had of late, by name."""
        return read_query(_states)

    @operation
    def get(self, name: str) -> Query[ScheduleState]:
        """One of them.

        Raises:
            ScheduleNotFound: no node has it.
        """
        return read_query(_state, validation.text("schedule", name))

    @operation
    def runs(self, name: str | None = None, *, limit: int = 100) -> Query[Runs]:
        """Its newest runs, or those of all schedules, the newest first.

        Args:
            name: the schedule's.
            limit: how many, at most 10,000.
        """
        number = validation.number("limit", limit, 1, MAX_RUNS)
        return read_query(schedule_runs.list_runs, validation.text_or_none("schedule", name), limit=number)

    @operation
    def get_run(self, run_id: int) -> Query[ScheduleRun]:
        """One run.

        Raises:
            RunNotFound: it was purged, or never existed.
        """
        return read_query(schedule_runs.get_run, validation.number("run", run_id, 0, validation.MAX_ID))

    @operation
    def get_runs(self, run_id: int) -> Query[Runs]:
        """A run, and behind it those of the other processes: of type ``all``, each process has a run of its own.

        Raises:
            RunNotFound: it was purged, or never existed.
        """
        return read_query(schedule_runs.list_sibling_runs, validation.number("run", run_id, 0, validation.MAX_ID))

    @operation
    def run(self, name: str, /, *args: object, **named: object) -> Query[ScheduleRun]:
        """Ask for a run now, whatever its clock says and although it may be disabled; a node takes it within a second.

        Args:
            name: the schedule's.
            args: instead of its own arguments, by position or by name; JSON values.
            named: the same, by name.

        Returns:
            the run, which waits; look at it with `get_run`, or with `get_runs` where it is for all processes.

        Raises:
            ScheduleNotFound: no node has it.
            InvalidSchedule: it takes no arguments, or these cannot be written as JSON.
        """
        return write_query(_request, validation.text("schedule", name), _arguments(args, named))

    @operation
    def enable(self, name: str) -> Query[None]:
        """Let a schedule tick again that was disabled by hand; ticks that have passed are not made up for.

        Raises:
            ScheduleNotFound: no node has it.
        """
        return write_query(schedules.set_schedule_disabled, validation.text("schedule", name), disabled=False)

    @operation
    def disable(self, name: str) -> Query[None]:
        """Let a schedule tick nowhere in the cluster, within a second. It may be run by hand.

        Raises:
            ScheduleNotFound: no node has it.
        """
        return write_query(schedules.set_schedule_disabled, validation.text("schedule", name), disabled=True)


def _arguments(args: tuple[object, ...], named: Mapping[str, object]) -> str | None:
    if args and named:
        raise InvalidSchedule("args", "give them by position or by name, not both ways")
    if not args and not named:
        return None
    text = json_text("args", named or args)
    if len(text) > MAX_ARGUMENTS_BYTES:
        raise InvalidSchedule("args", f"are larger than {MAX_ARGUMENTS_BYTES // 1024} KiB of JSON; give an address")
    return text


def _request(connection: Connection, name: str, args: str | None) -> ScheduleRun:
    state = _state(connection, name)
    if args is not None and state.definition is not None and state.definition.queue is not None:
        raise InvalidSchedule("args", f"{quoted(name)} enqueues a task, whose body is its own")
    return schedule_runs.request_run(connection, name, args)


def _states(connection: Connection) -> list[ScheduleState]:
    clocks: dict[str, list[ScheduleRow]] = {}
    for clock in schedules.list_schedule_rows(connection):
        clocks.setdefault(clock.name, []).append(clock)
    return [_state_of(connection, name, rows) for name, rows in clocks.items() if rows[0].node_id == CLUSTER_ROW]


def _state(connection: Connection, name: str) -> ScheduleState:
    schedules.require_schedule(connection, name)
    return _state_of(connection, name, schedules.list_schedule_rows(connection, name))


def _state_of(connection: Connection, name: str, clocks: list[ScheduleRow]) -> ScheduleState:
    cluster, *node_clocks = clocks
    living = {node.id: node for node in list_nodes(connection) if node.incarnation is not None}
    living_clocks = [
        clock
        for clock in node_clocks
        if clock.node_id in living and clock.incarnation == living[clock.node_id].incarnation
    ]
    definition = cluster.schedule
    newest = schedule_runs.list_runs(connection, name, limit=1)
    return ScheduleState(
        name=name,
        type=cluster.type,
        definition=definition,
        state=_state_name(definition, cluster, living_clocks),
        next_at=min((clock.next_at for clock in [cluster, *living_clocks] if clock.next_at is not None), default=None),
        last_at=max((clock.last_at for clock in [cluster, *living_clocks] if clock.last_at is not None), default=None),
        last_run=newest[0] if newest else None,
        nodes=[
            ScheduleNode(
                node=living[clock.node_id].name,
                next_at=clock.next_at,
                is_own=clock.fingerprint == cluster.fingerprint,
                error=clock.error,
            )
            for clock in living_clocks
        ],
    )


def _state_name(definition: Schedule | None, cluster: ScheduleRow, living_clocks: list[ScheduleRow]) -> str:
    if not living_clocks:
        return "nowhere"
    if any(clock.error is not None for clock in living_clocks):
        return "error"
    if cluster.disabled:
        return "disabled"
    return "off" if definition is not None and not definition.enabled else "on"
