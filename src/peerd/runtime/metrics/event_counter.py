"""Counts events: each row of `COUNTED` says which metric an event adds to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from peerd.runtime.metrics.registry import MetricsRegistry
from peerd.runtime.observability import events
from peerd.runtime.observability.events import Event


def _count_claim(metrics: MetricsRegistry, event: events.TasksClaimed) -> None:
    metrics.count("peerd_claimed_tasks_total", by=event.count)
    metrics.observe("peerd_claim_seconds", event.milliseconds / 1000)


def _count_lost_claim(metrics: MetricsRegistry, event: events.ClaimLost) -> None:
    if event.noticed_at == "outcome":
        metrics.count("peerd_refused_writes_total")
    else:
        metrics.count("peerd_lost_claims_total", event.noticed_at)


def _count_rescues(metrics: MetricsRegistry, event: events.TasksRescued) -> None:
    metrics.count("peerd_rescues_total", by=len(event.task_ids))
    if event.dead:
        metrics.count("peerd_rescued_dead_total", by=event.dead)


COUNTED: Final[dict[type[Event], Callable[[MetricsRegistry, Any], None]]] = {
    events.TasksClaimed: _count_claim,
    events.ClaimLost: _count_lost_claim,
    events.UnknownClaimReleased: lambda metrics, _: metrics.count("peerd_unknown_claims_released_total"),
    events.TasksRescued: _count_rescues,
    events.ReservationsReleased: lambda metrics, event: metrics.count(
        "peerd_released_reservations_total", by=len(event.task_ids)
    ),
    events.BadCopiesFound: lambda metrics, event: metrics.count(
        "peerd_storage_bad_copies_total", str(event.disk), event.found_by, by=len(event.files)
    ),
    events.ComponentFailed: lambda metrics, event: metrics.count("peerd_component_failures_total", event.component),
    events.DatabaseOutageStarted: lambda metrics, _: metrics.count("peerd_database_outages_total"),
    events.DatabaseOutageEnded: lambda metrics, event: metrics.count(
        "peerd_database_outage_seconds_total", by=event.seconds
    ),
    events.ChoreRan: lambda metrics, event: metrics.count("peerd_chore_rows_total", event.chore, by=event.count),
    events.ScheduleRunEnded: lambda metrics, event: metrics.count(
        "peerd_schedule_runs_total", event.schedule, event.status
    ),
}


class MetricsEventListener:
    """Counts events in a registry; for `EventBus.listen`.

    >>> metrics = MetricsRegistry()
    >>> MetricsEventListener(metrics)(events.ChoreRan(chore="purge done", count=3))
    >>> metrics.samples()[0].value
    3.0
    """

    def __init__(self, metrics: MetricsRegistry) -> None:
        self._metrics = metrics

    def accepts(self, kind: type[Event]) -> bool:
        """Whether events of a kind are counted."""
        return kind in COUNTED

    def __call__(self, event: Event) -> None:
        """Count an event."""
        COUNTED[type(event)](self._metrics, event)
