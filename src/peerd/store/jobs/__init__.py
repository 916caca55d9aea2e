"""Jobs: tasks as queue clients see them, which put, reserve, release, bury, kick and delete them.

A tube is a queue, a job is a task that has not ended, and a reservation is a claim with a deadline: ``deadline_at`` is
not null exactly while a queue client holds the row. Every write of a holder names the lease, as a worker's does.

Ready is pending; delayed is scheduled, failure or waiting; reserved is working; buried is buried. Tasks that have ended
are no jobs.
"""

from peerd.store.enqueue import put
from peerd.store.jobs.held import bury, delete_held, release, release_all, touch_reservations
from peerd.store.jobs.kicking import KickedPart, delete_free, kick, kick_job, kick_part
from peerd.store.jobs.pauses import pause_state, pause_tube
from peerd.store.jobs.reserving import reserve, reserve_by_id
from peerd.store.jobs.statistics import (
    cluster_counts,
    count_unfinished_up_to,
    has_jobs,
    job_statistics,
    peek,
    peek_buried,
    peek_delayed,
    peek_ready,
    tube_counts,
    tubes_with_jobs,
)
from peerd.store.jobs.types import (
    Bury,
    FoundJob,
    JobState,
    JobStatistics,
    Release,
    ReservedJob,
    TubeCounts,
    TubePause,
)

__all__ = [
    "Bury",
    "FoundJob",
    "JobState",
    "JobStatistics",
    "KickedPart",
    "Release",
    "ReservedJob",
    "TubeCounts",
    "TubePause",
    "bury",
    "cluster_counts",
    "count_unfinished_up_to",
    "delete_free",
    "delete_held",
    "has_jobs",
    "job_statistics",
    "kick",
    "kick_job",
    "kick_part",
    "pause_state",
    "pause_tube",
    "peek",
    "peek_buried",
    "peek_delayed",
    "peek_ready",
    "put",
    "release",
    "release_all",
    "reserve",
    "reserve_by_id",
    "touch_reservations",
    "tube_counts",
    "tubes_with_jobs",
]
