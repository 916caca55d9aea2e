"""Loads the hook that [errors] names, and lets a service report to it."""

from __future__ import annotations

import inspect
from typing import cast

from peerd.config.settings import Settings
from peerd.domain.error_report import ErrorHook
from peerd.entrypoints.import_string import InvalidEntry, import_entry
from peerd.runtime.observability.error_reporting import ErrorReportingService
from peerd.runtime.observability.events import ErrorHookFailed, EventBus
from peerd.runtime.process.service import Service


def with_error_hook(service: Service, settings: Settings, events: EventBus) -> Service:
    """The service, which reports errors if there is a hook.

    Raises:
        InvalidEntry: the hook cannot be imported, or is no plain function.
    """
    entry = settings.errors.hook
    return service if entry is None else ErrorReportingService(service, events, load_error_hook(entry))


def with_error_hook_if_it_loads(service: Service, settings: Settings, events: EventBus) -> Service:
    """The same for a process that must start in any case: a hook that does not load is an event."""
    try:
        return with_error_hook(service, settings, events)
    except InvalidEntry as error:
        events.emit(ErrorHookFailed(error=str(error)))
        return service


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
