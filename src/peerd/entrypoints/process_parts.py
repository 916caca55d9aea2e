"""What the processes of all kinds are made of, from the payload of their plan and the entries of the configuration."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, cast

from peerd.config.section import deserialize_section
from peerd.config.settings import Settings, TelemetrySettings
from peerd.domain.errors import PeerdError
from peerd.doorbell.notifier import Notifier
from peerd.runtime.metrics import registry
from peerd.runtime.metrics.node_metrics import MetricsReporter
from peerd.runtime.metrics.registry import AttemptStatistics
from peerd.runtime.observability import log_output
from peerd.runtime.observability.error_reporting import ErrorHook
from peerd.runtime.observability.events import ComponentFailed, EventBus
from peerd.runtime.observability.log_file import REPORT_EVERY, report_lost_output
from peerd.runtime.process.process_context import ProcessContext
from peerd.runtime.process.uncaught_exceptions import user_frames
from peerd.shared.client import SharedClients
from peerd.shared.connection import SharedConnection
from peerd.shell import ProcessShell, Service
from peerd.store.connection.database import Database
from peerd.store.connection.outages import DatabaseMetrics


class ProcessParts:
    """The parts of a process that an entry point puts together.

    Args:
        payload: of its plan.
        pool_size: connections of its database; None: [database] pool_size.

    Attributes:
        settings: the sections that the process gets.
        kind: of the process, the name of its section.
        events: what happens in it.
        database: of the node.
    """

    def __init__(self, payload: Mapping[str, Any], pool_size: int | None = None) -> None:
        self.settings = settings = decode_settings(payload)
        self.kind = str(payload["kind"])
        self.events = create_events(payload, settings)
        require_opentelemetry(settings)
        self.database = Database(settings.database.url, pool_size=pool_size or settings.database.pool_size)

    def load_error_hook(self) -> ErrorHook | None:
        """The hook of [errors], if there is one.

        Raises:
            InvalidEntry: it cannot be imported, or is no plain function.
        """
        entry = self.settings.errors.hook
        return None if entry is None else load_error_hook(entry)

    def make_shared_clients(self) -> SharedClients:
        """The process's connection to the agent's shared clients, which connects at its first use; on the loop."""
        return SharedClients(SharedConnection(self.settings.node.run_directory))

    def make_shell(
        self,
        service: Service,
        *,
        client: Any = None,
        error_hook: ErrorHook | None = None,
        notifier: Notifier | None = None,
        statistics: AttemptStatistics | None = None,
        attach: Callable[[ProcessContext], object] = lambda _: None,
    ) -> ProcessShell:
        """The process with its service, measured as far as [telemetry] says so; arguments as of `ProcessShell`.

        `notifier` and `statistics` are as of `measure_process`.
        """
        measure = measure_process(self.settings.telemetry, self.events, self.database, notifier, statistics)

        def attach_all(process: ProcessContext) -> None:
            attach(process)
            measure(process)

        return ProcessShell(
            service, self.database, self.events, client=client, error_hook=error_hook, attach=attach_all
        )


def decode_settings(payload: Mapping[str, Any]) -> Settings:
    return deserialize_section(payload["settings"], Settings)


def create_events(payload: Mapping[str, Any], settings: Settings) -> EventBus:
    """Return an event bus that writes the log, with many successes aggregated into a line unless the level is debug."""
    log = log_output.configure_logging(
        settings.logging.level, settings.logging.format, node=settings.node.name, slot=str(payload["slot"])
    )
    events = EventBus()
    log_output.log_events(events, log)
    report_lost_output(
        lambda error: events.emit(ComponentFailed(component="log", error=str(error), again_in=REPORT_EVERY))
    )
    return events


def require_opentelemetry(settings: Settings) -> None:
    """Check that the packages of the extra `otel` are installed, where they are used.

    Raises:
        InvalidEntry: one of them is not.
    """
    if settings.telemetry.opentelemetry:
        try:
            import_module("peerd.runtime.span_export")
        except ImportError as error:
            problem = f"it requires OpenTelemetry ({error}); install peerd[otel]"
            raise InvalidEntry("telemetry", "opentelemetry", problem) from error


def load_error_hook(entry: str) -> ErrorHook:
    """The function of an entry.

    Raises:
        InvalidEntry: it cannot be imported, or is no plain function.
    """
    found = import_entry("errors", entry)
    if not callable(found):
        raise InvalidEntry("errors", entry, f"is a {type(found).__name__}, not a function that takes a report")
    if inspect.iscoroutinefunction(found):
        raise InvalidEntry(
            "errors", entry, "is a coroutine function; the hook is called in a thread, write a plain one"
        )
    return cast("ErrorHook", found)


# ---------------------------------------------------------------- metrics and spans


def measure_process(
    settings: TelemetrySettings,
    events: EventBus,
    database: Database,
    notifier: Notifier | None = None,
    statistics: AttemptStatistics | None = None,
) -> Callable[[ProcessContext], None]:
    """Measure a process, as far as [telemetry] says so; return what attaches the process once there is one.

    That reports its metrics to the agent, unless it is the agent, and exports its spans.

    Args:
        settings: [telemetry].
        events: of the process, which are counted.
        database: whose operations are measured.
        notifier: whose rings are counted.
        statistics: of the attempts that end in the process; it listens to their events.
    """
    metrics = registry.MetricsRegistry()
    if settings.metrics:
        registry.count_events(events, metrics)
        DatabaseMetrics(database, metrics)
        if notifier is not None:
            metrics.add_source(lambda: [registry.Sample("peerd_rings_sent_total", (), notifier.rings_sent)])
        if statistics is not None:
            metrics.add_source(lambda: registry.attempt_samples(statistics))

    def attach(process: ProcessContext) -> None:
        if settings.opentelemetry:
            _trace(process)
        process.metrics = metrics
        if settings.metrics:
            metrics.add_source(
                lambda: [registry.Sample("peerd_loop_lag_seconds", (process.kind,), process.take_largest_lag())]
            )
            if process.kind != "agent":
                MetricsReporter(process)

    return attach


def _trace(process: ProcessContext) -> None:
    from peerd.runtime.span_export import set_up_tracing  # noqa: PLC0415 - of an extra, and slow to load
    from peerd.runtime.spans import AttemptTracer  # noqa: PLC0415

    process.on_finish(set_up_tracing(process.node, process.slot))
    process.tracer = AttemptTracer(process.node, process.slot)


# ---------------------------------------------------------------- entries of the configuration


class ImportStringError(Exception):
    """The object cannot be imported; the text says why."""


class InvalidEntry(PeerdError):
    """The object that an entry of a section, such as ``workers.video``, names does not exist or cannot be used."""

    def __init__(self, section: str, entry: str, problem: str) -> None:
        super().__init__(f"[{section}] {entry}: {problem}")


def import_object(entry: str) -> object:
    """Return the object that an entry names.

    Raises:
        ImportStringError: it cannot be imported.
    """
    module_name, _, attribute = entry.partition(":")
    try:
        found: object = import_module(module_name)
    except Exception as error:
        cause = f"{type(error).__name__}: {error}{_location_of(error)}"
        raise ImportStringError(f"importing {module_name} failed: {cause}") from error
    for part in attribute.split("."):
        if not hasattr(found, part):
            raise ImportStringError(f"{module_name} has no {attribute}{_stdlib_hint(module_name)}")
        found = getattr(found, part)
    return found


def import_entry(section: str, entry: str) -> object:
    """Return the object that an entry of a section names.

    Raises:
        InvalidEntry: it cannot be imported.
    """
    try:
        return import_object(entry)
    except ImportStringError as error:
        raise InvalidEntry(section, entry, str(error)) from error


def _location_of(error: Exception) -> str:
    """Return the line of user code that raised an exception; a SyntaxError contains it already."""
    frames = [] if isinstance(error, SyntaxError) else user_frames(error)
    return f" ({frames[-1].filename}, line {frames[-1].lineno})" if frames else ""


def _stdlib_hint(module_name: str) -> str:
    if module_name.partition(".")[0] not in sys.stdlib_module_names:
        return ""
    return f": {module_name} is a module of the standard library, which is found first; rename the project's file"
