"""A worker's process: runs the worker class or the queues that the configuration names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from peerd.config.settings import WorkerSettings
from peerd.doorbell.ringing import DoorbellEventListener
from peerd.entrypoints.process_parts import InvalidEntry, ProcessParts, import_entry, import_object
from peerd.operate.client import Client
from peerd.runtime import concurrency
from peerd.runtime.metrics.registry import AttemptStatistics
from peerd.runtime.observability.events import AttemptEnded
from peerd.runtime.process.process_context import ProcessContext
from peerd.runtime.process.uncaught_exceptions import describe_exception
from peerd.schedules.run_executor import ScheduleRunExecutor
from peerd.shell import ProcessShell, Service
from peerd.work.handlers import Queue
from peerd.work.output_capture import capture_output
from peerd.work.services import PeriodicService, TaskService
from peerd.work.task_worker import QueueWorker, TaskWorker
from peerd.work.worker import Worker, work_settings_of


def worker(payload: Mapping[str, Any]) -> ProcessShell:
    parts = ProcessParts(payload)
    settings, events, database = parts.settings, parts.events, parts.database
    section = settings.workers[parts.kind]
    if section.log_lines:
        capture_output(settings.logging.level)
    user_worker = load_worker(parts.kind, section)
    user_worker.events = events
    if database.is_single_writer:
        concurrency.shorten_switch_interval()
    client = Client(database, secret=settings.cluster.secret, mask=settings.access.mask)
    events.listen(DoorbellEventListener(client.notifier.ring), debug=False)
    statistics = AttemptStatistics()
    if settings.statistics.enabled or settings.telemetry.metrics:
        events.listen(statistics, (AttemptEnded,))

    def attach(process: ProcessContext) -> None:
        process.find_shared = parts.make_shared_clients()
        ScheduleRunExecutor(process, import_object, events, timeout_grace=user_worker.settings.timeout_grace)

    service = make_service(user_worker, statistics if settings.statistics.enabled else None)
    hook = parts.load_error_hook()
    return parts.make_shell(
        service, client=client, error_hook=hook, notifier=client.notifier, statistics=statistics, attach=attach
    )


def make_service(user_worker: Worker | TaskWorker, statistics: AttemptStatistics | None) -> Service:
    """The service of a worker's kind."""
    if isinstance(user_worker, TaskWorker):
        return TaskService(user_worker, statistics)
    return PeriodicService(user_worker)


def load_worker(kind: str, given: WorkerSettings) -> Worker | TaskWorker:
    """Return the worker object that a section of the configuration names, with its settings.

    Raises:
        InvalidEntry: it cannot be imported or created, or is no worker.
    """
    section = f"workers.{kind}"
    found = _load_queue_worker(kind, given.tasks) if given.tasks is not None else _load_worker_class(kind, given)
    found.settings = work_settings_of(found, given)
    if isinstance(found, TaskWorker) and not found.settings.queues:
        raise InvalidEntry(section, type(found).__name__, "names no queue; give it queues = (…,)")
    if isinstance(found, QueueWorker) and (unknown := set(found.settings.queues) - set(found.queues)):
        # Every task of such a queue would be dead at once.
        problem = f"no handlers are declared for {', '.join(sorted(unknown))}; only {', '.join(found.queues)}"
        raise InvalidEntry(section, "queues", problem)
    return found


def _load_queue_worker(kind: str, entries: Sequence[str]) -> QueueWorker:
    queues = []
    for entry in entries:
        queue = load_worker_object(kind, entry)
        if not isinstance(queue, Queue):
            raise InvalidEntry(f"workers.{kind}", entry, f"is a {type(queue).__name__}, not a Queue")
        queues.append(queue)
    return QueueWorker(queues)


def _load_worker_class(kind: str, given: WorkerSettings) -> Worker | TaskWorker:
    section, entry = f"workers.{kind}", given.worker or ""
    found = load_worker_object(kind, entry)
    if not (isinstance(found, type) and issubclass(found, Worker | TaskWorker)):
        raise InvalidEntry(section, entry, "is not a subclass of peerd.Worker or peerd.TaskWorker")
    if issubclass(found, Worker) and found.loop is Worker.loop:
        raise InvalidEntry(section, entry, "has no method loop(), which a Worker needs")
    if issubclass(found, TaskWorker) and found.handle_task is TaskWorker.handle_task:
        raise InvalidEntry(section, entry, "has no method handle_task(task), which a TaskWorker needs")
    try:
        return found()
    except Exception as error:
        raise InvalidEntry(section, entry, f"cannot be created: {describe_exception(error)}") from error


def load_worker_object(kind: str, entry: str) -> object:
    return import_entry(f"workers.{kind}", entry)
