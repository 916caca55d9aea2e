"""A worker's process: the user's code, found by what the config names, in the service that fits it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from peerd.config.settings import WorkerSettings
from peerd.domain.errors import PeerdError
from peerd.doorbell.event_listener import RingingFacts
from peerd.entrypoints.import_string import NoEntry, find
from peerd.entrypoints.payload import events_of, settings_of, shared_of
from peerd.operate.client import Client
from peerd.runtime.concurrency import threads
from peerd.runtime.observability.alert_detection import Alerting
from peerd.runtime.process.process_context import ProcessContext
from peerd.runtime.process.service import Service
from peerd.runtime.process.uncaught_exceptions import words
from peerd.schedules.run_executor import ScheduleRunner
from peerd.store.connection.database import Database
from peerd.work.handlers import Queue
from peerd.work.services import PeriodicService, TaskService
from peerd.work.settings import Settings as WorkSettings
from peerd.work.task_worker import QueueWorker, TaskWorker
from peerd.work.worker import Worker


class BadWorker(PeerdError):
    """What [workers.NAME] names is not there, or is not what it should be."""

    def __init__(self, kind: str, entry: str, problem: str) -> None:
        self.kind = kind
        super().__init__(f"[workers.{kind}] {entry}: {problem}")


def worker(payload: Mapping[str, Any]) -> Service:
    """The service of a process that runs a user's code."""
    settings = settings_of(payload)
    kind = str(payload["kind"])
    events = events_of(payload, settings)
    user = load_worker(kind, settings.workers[kind])
    user.events = events
    database = Database(settings.database.url, pool_size=settings.database.pool_size)
    if database.has_one_writer:
        threads.take_turns_sooner()
    client = Client(database, secret=settings.cluster.secret)
    events.listen(RingingFacts(client.ringer.ring))
    shared = shared_of(settings)

    def run_schedules(process: ProcessContext) -> None:
        ScheduleRunner(process, find, events, timeout_grace=user.settings.timeout_grace)

    match user:
        case TaskWorker():
            service: Service = TaskService(
                user, database, events, client.aio.enqueue, client, shared=shared, attach=run_schedules
            )
        case Worker():
            service = PeriodicService(user, database, events, client, shared, attach=run_schedules)
        case other:
            raise BadWorker(kind, type(other).__name__, "is neither a Worker nor a TaskWorker")
    return Alerting(service, events)


def load_worker(kind: str, given: WorkerSettings) -> Worker | TaskWorker:
    """The worker object that a section of the config names, with its settings.

    Raises:
        BadWorker: what it names cannot be imported, or is not what it should be.
    """
    found = _from_queues(kind, given) if given.tasks is not None else _from_class(kind, given)
    found.settings = WorkSettings.of(found, given)
    if isinstance(found, TaskWorker) and not found.settings.queues:
        raise BadWorker(kind, type(found).__name__, "names no queue; give it queues = (…,)")
    if isinstance(found, QueueWorker):
        _require_handlers(kind, found)
    return found


def _require_handlers(kind: str, worker: QueueWorker) -> None:
    """Refuse to serve queues that no declaration names: every task of them would be dead at once."""
    unknown = set(worker.settings.queues) - set(worker.queues)
    if unknown:
        declared = ", ".join(worker.queues)
        raise BadWorker(kind, "queues", f"no handlers are declared for {', '.join(sorted(unknown))}; only {declared}")


def _from_queues(kind: str, given: WorkerSettings) -> QueueWorker:
    queues = []
    for entry in given.tasks or ():
        queue = load(kind, entry)
        if not isinstance(queue, Queue):
            raise BadWorker(kind, entry, f"is a {type(queue).__name__}, not a Queue")
        queues.append(queue)
    return QueueWorker(queues)


def _from_class(kind: str, given: WorkerSettings) -> Worker | TaskWorker:
    entry = given.worker or ""
    found = load(kind, entry)
    if not (isinstance(found, type) and issubclass(found, Worker | TaskWorker)):
        raise BadWorker(kind, entry, "is not a class below peerd.Worker or peerd.TaskWorker")
    if issubclass(found, Worker) and found.loop is Worker.loop:
        raise BadWorker(kind, entry, "has no method loop(), which is what it would do")
    if issubclass(found, TaskWorker) and found.handle_task is TaskWorker.handle_task:
        raise BadWorker(kind, entry, "has no method handle_task(task), which is what it would do")
    try:
        return found()
    except Exception as error:
        raise BadWorker(kind, entry, f"cannot be made: {words(error)}") from error


def load(kind: str, entry: str) -> object:
    """What an entry ``module:name`` of the config names.

    Raises:
        BadWorker: it cannot be imported, or is not there.
    """
    try:
        return find(entry)
    except NoEntry as error:
        raise BadWorker(kind, entry, str(error)) from error
