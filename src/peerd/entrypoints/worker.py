"""A worker's process: the user's code, found by what the config names, in the service that fits it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from peerd.config.settings import WorkerSettings
from peerd.domain.errors import PeerdError
from peerd.doorbell.event_listener import DoorbellEventListener
from peerd.entrypoints.import_string import ImportStringError, import_object
from peerd.entrypoints.payload import create_events, decode_settings, shared_clients_factory
from peerd.operate.client import Client
from peerd.runtime.concurrency import threads
from peerd.runtime.observability.alert_detection import AlertingService
from peerd.runtime.process.process_context import ProcessContext
from peerd.runtime.process.service import Service
from peerd.runtime.process.uncaught_exceptions import describe_exception
from peerd.schedules.run_executor import ScheduleRunExecutor
from peerd.store.connection.database import Database
from peerd.work.handlers import Queue
from peerd.work.services import PeriodicService, TaskService
from peerd.work.task_worker import QueueWorker, TaskWorker
from peerd.work.worker import EffectiveWorkerSettings as WorkSettings
from peerd.work.worker import Worker


class InvalidWorker(PeerdError):
    """What [workers.NAME] names is not there, or is not what it should be."""

    def __init__(self, kind: str, entry: str, problem: str) -> None:
        self.kind = kind
        super().__init__(f"[workers.{kind}] {entry}: {problem}")


def worker(payload: Mapping[str, Any]) -> Service:
    """The service of a process that runs a user's code."""
    settings = decode_settings(payload)
    kind = str(payload["kind"])
    events = create_events(payload, settings)
    user = load_worker(kind, settings.workers[kind])
    user.events = events
    database = Database(settings.database.url, pool_size=settings.database.pool_size)
    if database.is_single_writer:
        threads.shorten_switch_interval()
    client = Client(database, secret=settings.cluster.secret)
    events.listen(DoorbellEventListener(client.notifier.ring))
    shared = shared_clients_factory(settings)

    def run_schedules(process: ProcessContext) -> None:
        ScheduleRunExecutor(process, import_object, events, timeout_grace=user.settings.timeout_grace)

    match user:
        case TaskWorker():
            service: Service = TaskService(user, database, events, client, shared=shared, attach=run_schedules)
        case Worker():
            service = PeriodicService(user, database, events, client, shared=shared, attach=run_schedules)
        case other:
            raise InvalidWorker(kind, type(other).__name__, "is neither a Worker nor a TaskWorker")
    return AlertingService(service, events)


def load_worker(kind: str, given: WorkerSettings) -> Worker | TaskWorker:
    """The worker object that a section of the config names, with its settings.

    Raises:
        InvalidWorker: what it names cannot be imported, or is not what it should be.
    """
    found = _load_queue_worker(kind, given) if given.tasks is not None else _load_worker_class(kind, given)
    found.settings = WorkSettings.of(found, given)
    if isinstance(found, TaskWorker) and not found.settings.queues:
        raise InvalidWorker(kind, type(found).__name__, "names no queue; give it queues = (…,)")
    if isinstance(found, QueueWorker):
        _require_handlers(kind, found)
    return found


def _require_handlers(kind: str, worker: QueueWorker) -> None:
    """Refuse to serve queues that no declaration names: every task of them would be dead at once."""
    unknown = set(worker.settings.queues) - set(worker.queues)
    if unknown:
        declared = ", ".join(worker.queues)
        raise InvalidWorker(
            kind, "queues", f"no handlers are declared for {', '.join(sorted(unknown))}; only {declared}"
        )


def _load_queue_worker(kind: str, given: WorkerSettings) -> QueueWorker:
    queues = []
    for entry in given.tasks or ():
        queue = load_worker_object(kind, entry)
        if not isinstance(queue, Queue):
            raise InvalidWorker(kind, entry, f"is a {type(queue).__name__}, not a Queue")
        queues.append(queue)
    return QueueWorker(queues)


def _load_worker_class(kind: str, given: WorkerSettings) -> Worker | TaskWorker:
    entry = given.worker or ""
    found = load_worker_object(kind, entry)
    if not (isinstance(found, type) and issubclass(found, Worker | TaskWorker)):
        raise InvalidWorker(kind, entry, "is not a class below peerd.Worker or peerd.TaskWorker")
    if issubclass(found, Worker) and found.loop is Worker.loop:
        raise InvalidWorker(kind, entry, "has no method loop(), which is what it would do")
    if issubclass(found, TaskWorker) and found.handle_task is TaskWorker.handle_task:
        raise InvalidWorker(kind, entry, "has no method handle_task(task), which is what it would do")
    try:
        return found()
    except Exception as error:
        raise InvalidWorker(kind, entry, f"cannot be made: {describe_exception(error)}") from error


def load_worker_object(kind: str, entry: str) -> object:
    """What an entry ``module:name`` of the config names.

    Raises:
        InvalidWorker: it cannot be imported, or is not there.
    """
    try:
        return import_object(entry)
    except ImportStringError as error:
        raise InvalidWorker(kind, entry, str(error)) from error
