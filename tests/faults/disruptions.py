"""When a process of a node could not be expected to do anything: it was dead, stood still, or was cut off."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import inf
from typing import Final

import msgspec

from tests.faults.final_tables import FinalProcess
from tests.faults.history import HistoryEvent

DEAD: Final = "dead"
FROZEN: Final = "frozen"
CUT: Final = "cut"
ENDED: Final = "ended"
"""Its end was recorded in the table of processes; of what, other troubles say."""
ORPHANED: Final = "orphaned"
"""Its master was killed: it leaves, within its grace or the hard way."""
KILL_MASTER: Final = "kill master"
"""The kind of the fault that does it; its target is `NODE/master`."""
STARTED_AGO: Final = 1.0
"""Seconds that a process's row may be younger than a fault that has hit it: it registers after it was started."""


class Disruption(msgspec.Struct, frozen=True):
    """A process is in trouble, from when to when, in seconds since 1970."""

    start: float
    end: float
    effect: str


class Disruptions:
    """The troubles of all processes of a run.

    Args:
        by_process: those of each, by the process's identity.
    """

    def __init__(self, by_process: Mapping[int, Sequence[Disruption]]) -> None:
        self._by_process = by_process

    def of(self, process_id: int | None, start: float = -inf, end: float = inf) -> list[Disruption]:
        """The troubles of a process between two moments."""
        known = self._by_process.get(process_id or 0, ())
        return [disruption for disruption in known if disruption.start <= end and disruption.end >= start]

    def longest_undisturbed(self, process_id: int | None, start: float, end: float) -> float:
        """Seconds of the longest time without trouble between two moments."""
        longest, quiet_since = 0.0, start
        for disruption in sorted(self.of(process_id, start, end), key=lambda one: one.start):
            longest = max(longest, min(disruption.start, end) - quiet_since)
            quiet_since = max(quiet_since, disruption.end)
        return max(longest, end - quiet_since)


def find_disruptions(
    events: Iterable[HistoryEvent], processes: Iterable[FinalProcess], nodes: Mapping[int, str]
) -> Disruptions:
    """The troubles of all processes: what the chaos did, what they did to themselves, and ends that were recorded."""
    rows = list(processes)
    by_process: dict[int, list[Disruption]] = defaultdict(list)
    in_order = list(events)
    for event in in_order:
        if event.event == "ended" and event.outcome == "crashing":
            by_process[event.process_id].append(Disruption(event.time, inf, DEAD))
    for fault, end in _intervals(in_order):
        disruption = Disruption(fault.time, end, ORPHANED if fault.kind == KILL_MASTER else fault.effect)
        for row in _hit(fault, end, rows, nodes):
            by_process[row.id].append(disruption)
    for row in rows:
        if row.ended_at is not None:
            by_process[row.id].append(Disruption(row.ended_at, inf, ENDED))
    return Disruptions(by_process)


def _intervals(events: Iterable[HistoryEvent]) -> Iterator[tuple[HistoryEvent, float]]:
    """Each fault, and when it was over."""
    still: dict[tuple[str, str], list[HistoryEvent]] = defaultdict(list)
    for event in events:
        if event.event == "fault":
            if event.effect == DEAD:
                yield event, inf
            else:
                still[event.kind, event.target].append(event)
        elif event.event == "healed":
            for fault in still.pop((event.kind, event.target), ()):
                yield fault, event.time + fault.lingers
    for faults in still.values():
        for fault in faults:
            yield fault, inf


def _hit(
    fault: HistoryEvent, end: float, rows: Sequence[FinalProcess], nodes: Mapping[int, str]
) -> Iterator[FinalProcess]:
    lived = [row for row in rows if row.started_at <= fault.time + STARTED_AGO]
    for pid in fault.pids:  # a pid comes again: it was the latest process that had it
        yield from sorted((row for row in lived if row.pid == pid), key=lambda row: row.started_at)[-1:]
    names = (fault.target.partition("/")[0],) if fault.kind == KILL_MASTER else fault.nodes
    until = fault.time + STARTED_AGO if fault.effect == DEAD else end
    for row in rows:
        is_meant = fault.everyone or nodes.get(row.node_id) in names
        if is_meant and row.started_at <= until and (row.ended_at is None or row.ended_at >= fault.time):
            yield row
