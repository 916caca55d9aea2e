"""What an `InlineNode` serves: queues and workers, with settings as a section of peerd.toml gives them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from peerd.config.reading.models import parse_section
from peerd.config.settings import WorkerSettings
from peerd.work.handlers import Queue
from peerd.work.task_worker import QueueWorker, TaskWorker
from peerd.work.worker import EffectiveWorkerSettings

INLINE_SETTINGS: Final = ("delay_ratio", "max_attempts", "options", "timeout")
"""Settings of a worker that mean something where nothing runs at the same time."""


def make_workers(serves: Sequence[Queue | TaskWorker], settings: Mapping[str, Any]) -> list[TaskWorker]:
    """The workers of what a test names, with their settings: one for all queues, and those that are given.

    Raises:
        TypeError: a setting that means nothing here.
    """
    if unknown := sorted(set(settings) - set(INLINE_SETTINGS)):
        raise TypeError(f"InlineNode has no setting {unknown[0]!r}; it has {', '.join(INLINE_SETTINGS)}")
    given = parse_section(WorkerSettings, settings)
    queues = [one for one in serves if isinstance(one, Queue)]
    workers = [one for one in serves if isinstance(one, TaskWorker)]
    workers = [*([QueueWorker(queues)] if queues else []), *workers]
    for worker in workers:
        worker.settings = EffectiveWorkerSettings.of(worker, given)
    return workers
