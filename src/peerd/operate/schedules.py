"""Schedules: their state and runs; create, delete, run, enable and disable them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Unpack

import msgspec
from sqlalchemy.engine import Connection

from peerd.domain.errors import InvalidSchedule
from peerd.domain.quoting import Masker, quoted
from peerd.domain.ring import SchedulesChanged
from peerd.domain.schedule import Schedule
from peerd.operate import validation
from peerd.operate.new_schedule import ScheduleFields, build_schedule
from peerd.operate.operations import Mode, OperationGroup, Query, operation
from peerd.operate.request import json_text
from peerd.operate.rest import rest
from peerd.store import schedule_runs, schedules
from peerd.store.audit import schedule_state, stored_schedule_state
from peerd.store.nodes import list_nodes
from peerd.store.schedule_runs import ScheduleRun
from peerd.store.schedules import CLUSTER_ROW, ScheduleRow, delete_schedule, insert_schedule, list_stored_names

MAX_RUNS = 10_000
MAX_ARGUMENTS_BYTES = 64 * 1024
"""Bytes of JSON."""


class ScheduleNode(msgspec.Struct, frozen=True, kw_only=True):
    """A node that has a schedule.

    Attributes:
        node: its name.
        next_at: its own next tick; None where the cluster's counts.
        is_own: whether its definition equals the cluster's; if not, it fires no tick of a schedule of the cluster.
        error: why it cannot keep the schedule.
    """

    node: str
    next_at: datetime | None
    is_own: bool
    error: str | None


class ScheduleState(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a schedule.

    ``definition`` is None where this version cannot read it. ``state`` is ``on``, ``disabled`` (by hand), ``off`` (in
    peerd.toml), ``error`` or ``nowhere`` (no running node has it). ``is_stored``: it was created at run time.
    """

    name: str
    type: str
    definition: Schedule | None
    is_stored: bool
    state: str
    next_at: datetime | None
    last_at: datetime | None
    last_run: ScheduleRun | None
    nodes: list[ScheduleNode]


ScheduleStates = list[ScheduleState]
Runs = list[ScheduleRun]


class ScheduleOperations(OperationGroup[Mode]):
    """``client.schedules``. What names a schedule raises `ScheduleNotFound` where no node has it."""

    subject = "schedules"

    @operation(rest=rest("GET /schedules", name="list_schedules"))
    def list(self) -> Query[ScheduleStates]:
        """All schedules that a node has or recently had, by name."""
        return Query("read", _states, self._masker)

    @operation(rest=rest("GET /schedules/{schedule}", name="show"))
    def get(self, name: str) -> Query[ScheduleState]:
        """The state of one schedule."""
        return Query("read", _state, validation.text("schedule", name), self._masker)

    @operation(rest=rest("GET /schedules/{schedule}/runs", name="list_runs"))
    def runs(self, name: str | None = None, *, limit: int = 100) -> Query[Runs]:
        """The newest runs of one schedule, or of all, newest first.

        Args:
            name: the schedule's.
            limit: how many, at most 10,000.
        """
        limit = validation.number("limit", limit, 1, MAX_RUNS)
        return Query(
            "read", self._runs, schedule_runs.list_runs, validation.text_or_none("schedule", name), limit=limit
        )

    @operation
    def get_run(self, run_id: int) -> Query[ScheduleRun]:
        """Read a run. Raises RunNotFound."""
        return Query("read", self._run, validation.number("run", run_id, 0))

    @operation
    def get_runs(self, run_id: int) -> Query[Runs]:
        """A run, and after it the runs of other processes: type ``all`` has one for each. Raises RunNotFound."""
        return Query("read", self._runs, schedule_runs.list_sibling_runs, validation.number("run", run_id, 0))

    @operation
    def run(self, name: str, /, *args: object, **named: object) -> Query[ScheduleRun]:
        """Request a run now, also of a disabled schedule; a node takes it within a second.

        Args:
            name: the schedule's.
            args: JSON values, by position, instead of the schedule's own arguments.
            named: the same, by name.

        Returns:
            the requested run; `get_run` reads its state, or `get_runs` those of all processes.

        Raises:
            InvalidSchedule: it takes no arguments, or these cannot be written as JSON.
        """
        query = Query("run", _request, validation.text("schedule", name), _arguments(args, named))
        return query.making("schedule", lambda run: (name, {"run": str(run.id)}))

    @operation(rest=rest("POST /schedules", answer="nothing"))
    def create(self, name: str, **fields: Unpack[ScheduleFields]) -> Query[None]:
        """Create a schedule that enqueues a task, on all nodes, within seconds; it survives restarts.

        Args:
            name: unique in the cluster.
            fields: as in ``[schedules.NAME]`` of peerd.toml; see `ScheduleFields`. A function (``run``) can be there
                only.

        Raises:
            InvalidSchedule: a field is wrong; it is named.
            ScheduleNameTaken: there is one of this name.
        """
        schedule = build_schedule(name, fields)
        query = Query("run", insert_schedule, schedule, created_by=self._actor.name)
        return query.then_ring(SchedulesChanged()).acting_on("schedule", name, stored_schedule_state, name)

    @operation(rest=rest("DELETE /schedules/{schedule}", answer="nothing"))
    def delete(self, name: str) -> Query[None]:
        """Delete a schedule that was created at run time; what it has enqueued stays.

        Raises:
            ScheduleNotStored: peerd.toml of a node has it.
        """
        query = Query("run", delete_schedule, validation.text("schedule", name)).then_ring(SchedulesChanged())
        return query.acting_on("schedule", name, stored_schedule_state, name)

    @operation(rest=rest("POST /schedules/{schedule}/enable", answer="nothing"))
    def enable(self, name: str) -> Query[None]:
        """Enable a schedule that was disabled by hand; ticks that it has missed are not made up for."""
        query = Query("run", schedules.set_schedule_disabled, validation.text("schedule", name), disabled=False)
        return query.acting_on("schedule", name, schedule_state, name)

    @operation(rest=rest("POST /schedules/{schedule}/disable", answer="nothing"))
    def disable(self, name: str) -> Query[None]:
        """Disable a schedule in the whole cluster, within a second. It can still be run by hand."""
        query = Query("run", schedules.set_schedule_disabled, validation.text("schedule", name), disabled=True)
        return query.acting_on("schedule", name, schedule_state, name)

    def _run(self, connection: Connection, /, run_id: int) -> ScheduleRun:
        return _mask_run(schedule_runs.get_run(connection, run_id), self._masker)

    def _runs(self, connection: Connection, /, list_some: Callable[..., Runs], *args: object, **more: object) -> Runs:
        return [_mask_run(run, self._masker) for run in list_some(connection, *args, **more)]


def _arguments(args: tuple[object, ...], named: Mapping[str, object]) -> str | None:
    if args and named:
        raise InvalidSchedule("args", "give them by position or by name, not both")
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


def _states(connection: Connection, masker: Masker | None) -> list[ScheduleState]:
    clocks: dict[str, list[ScheduleRow]] = {}
    for clock in schedules.list_schedule_rows(connection):
        clocks.setdefault(clock.name, []).append(clock)
    stored = list_stored_names(connection)
    found = [
        _state_of(connection, name, rows, is_stored=name in stored)
        for name, rows in clocks.items()
        if rows[0].node_id == CLUSTER_ROW
    ]
    return [_masked(state, masker) for state in found]


def _state(connection: Connection, name: str, masker: Masker | None = None) -> ScheduleState:
    schedules.require_schedule(connection, name)
    is_stored = name in list_stored_names(connection)
    clocks = schedules.list_schedule_rows(connection, name)
    return _masked(_state_of(connection, name, clocks, is_stored=is_stored), masker)


def _masked(state: ScheduleState, masker: Masker | None) -> ScheduleState:
    """A state whose definition has masked arguments."""
    definition = state.definition
    if masker is None or definition is None:
        return state
    masked = msgspec.structs.replace(
        definition, **{field: _mask(getattr(definition, field), masker) for field in ("args", "body")}
    )
    return msgspec.structs.replace(state, definition=masked)


def _mask_run(run: ScheduleRun, masker: Masker | None) -> ScheduleRun:
    if masker is None:
        return run
    texts = {column: getattr(run, column) for column in ("args", "error", "traceback")}
    masked = {column: masker.json_text(text) for column, text in texts.items() if text is not None}
    return msgspec.structs.replace(run, **masked)


def _mask(value: Any, masker: Masker) -> Any:
    masked = masker.value(msgspec.to_builtins(value))
    return tuple(masked) if isinstance(value, tuple) else masked


def _state_of(connection: Connection, name: str, clocks: list[ScheduleRow], *, is_stored: bool) -> ScheduleState:
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
        is_stored=is_stored,
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
