"""The table of all metrics of a node. docs/monitoring.md shows it, and a test compares both."""

from __future__ import annotations

from enum import StrEnum
from functools import partial
from typing import Final, NamedTuple

WIDE: Final = 27
"""Buckets up to 18 hours: for what waits and for what users write."""
NARROW: Final = 17
"""Buckets up to 65 s: for what a database or a web application takes."""
DEATH_CAUSES: Final = (
    "boot-failed", "cpu-limit", "exit", "hung", "killed-after-grace", "memory-limit", "out-of-memory", "recycled",
    "replaced", "scaled", "signal", "silent", "tainted",
)  # fmt: skip
"""The kinds of causes that the master reports."""


DATABASE_OUTCOMES: Final = ("done", "unavailable", "busy", "locked", "failed")
"""How an operation on the database can end."""


class MetricKind(StrEnum):
    """What a number means: how it may change, and how those of several processes become one."""

    COUNTER = "counter"  # only grows; those of all processes are added
    GAUGE = "gauge"  # rises and falls; those of the living processes are added
    LARGEST = "largest"  # a gauge; the largest value among the living processes counts
    HISTOGRAM = "histogram"  # durations by size, in seconds; those of all processes are added


class MetricFamily(NamedTuple):
    """A metric: its kind, its meaning, and the names of its labels.

    Attributes:
        buckets: of a histogram: bucket i ends at 2^i ms.
    """

    kind: MetricKind
    text: str
    labels: tuple[str, ...] = ()
    buckets: int = WIDE


_counter, _gauge, _largest, _histogram = (partial(MetricFamily, kind) for kind in MetricKind)

FAMILIES: Final[dict[str, MetricFamily]] = {
    # ------------------------------------------------------------ tasks
    "peerd_tasks_finished_total": _counter("Attempts that ended, by outcome.", ("queue", "name", "outcome")),
    "peerd_task_wait_seconds": _histogram(
        "Time from the moment in which a task was due to its claim.", ("queue", "name")
    ),
    "peerd_task_run_seconds": _histogram("Time for which handlers ran.", ("queue", "name")),
    "peerd_claim_seconds": _histogram("Time of claims that found tasks.", (), NARROW),
    "peerd_claimed_tasks_total": _counter("Tasks that were claimed."),
    "peerd_lost_claims_total": _counter(
        "Claims that were not held any more when a touch or a ring showed it.", ("noticed_at",)
    ),
    "peerd_refused_writes_total": _counter(
        "Outcomes that the database refused, because their claim was not held any more."
    ),
    "peerd_unknown_claims_released_total": _counter("Claims that their process did not know, and released."),
    "peerd_rescues_total": _counter("Tasks that were released from a dead holder."),
    "peerd_rescued_dead_total": _counter("Rescued tasks that had no attempt left."),
    "peerd_released_reservations_total": _counter(
        "Reservations of queue clients that were released because their process was dead."
    ),
    "peerd_slots": _gauge("Executor slots of worker processes: busy or free.", ("kind", "state")),
    "peerd_unwritten_outcomes": _gauge("Ended attempts whose outcome is not committed yet.", ("kind",)),
    # ------------------------------------------------------------ processes
    "peerd_deaths_total": _counter("Processes that ended without a request to, by kind of cause.", ("cause",)),
    "peerd_restarts_total": _counter(
        "Processes that became ready in the place of another, also by a reload.", ("role",)
    ),
    "peerd_loop_lag_seconds": _largest(
        "Largest delay of an event loop between two reports, of the slowest process.", ("kind",)
    ),
    "peerd_component_failures_total": _counter(
        "Failures of components of a process; each was started again.", ("component",)
    ),
    "peerd_alerts_total": _counter("Alerts of the node, before the limit of each hook.", ("alert",)),
    "peerd_node_info": _largest("1; its labels name the node and its version.", ("node", "version")),
    # ------------------------------------------------------------ database
    "peerd_database_operation_seconds": _histogram(
        "Time of operations on the database: connection, locks and repetitions included.", ("outcome",), NARROW
    ),
    "peerd_database_retries_total": _counter("Repetitions of operations that the database had rolled back."),
    "peerd_database_connections": _gauge("Connections to the database.", ("state",)),
    "peerd_database_outages_total": _counter("Outages of the database, of each process by itself."),
    "peerd_database_outage_seconds_total": _counter("Seconds of outages that are over, of each process by itself."),
    # ------------------------------------------------------------ doorbell, schedules, chores
    "peerd_doorbell_works": _largest("Whether the doorbell of the node is known to work."),
    "peerd_rings_received_total": _counter("Rings that the agent received."),
    "peerd_rings_sent_total": _counter("Rings that processes of the node sent."),
    "peerd_rings_rejected_total": _counter("Rings that the agent rejected.", ("reason",)),
    "peerd_schedule_runs_total": _counter("Runs of schedules that ended.", ("schedule", "status")),
    "peerd_chore_rows_total": _counter("Rows that the manager's chores changed.", ("chore",)),
    # ------------------------------------------------------------ web and gateway
    "peerd_web_request_seconds": _histogram("Time of web requests, by class of status.", ("kind", "status"), NARROW),
    "peerd_web_requests_in_flight": _gauge("Web requests that are being answered.", ("kind",)),
    "peerd_gateway_clients": _gauge("Connected queue clients.", ("kind",)),
    "peerd_gateway_commands_total": _counter("Commands of queue clients.", ("kind", "command")),
    # ------------------------------------------------------------ storage
    "peerd_storage_copies_made_total": _counter("Copies that were made on a disk.", ("disk",)),
    "peerd_storage_copied_bytes_total": _counter("Bytes of copies that were made.", ("disk",)),
    "peerd_storage_verified_bytes_total": _counter(
        "Bytes of contents that were read and compared with the catalogue.", ("disk",)
    ),
    "peerd_storage_bad_copies_total": _counter(
        "Copies that were found to be damaged or missing, by what has found them.", ("disk", "found_by")
    ),
    "peerd_storage_requests_total": _counter(
        "Requests to the storage server, by class of status.", ("request", "method", "status")
    ),
    "peerd_storage_received_bytes_total": _counter("Bytes of bodies of such requests.", ("request",)),
    "peerd_storage_sent_bytes_total": _counter("Bytes of bodies of the responses.", ("request",)),
}
