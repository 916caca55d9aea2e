"""A web process: serves the ASGI app that the configuration names."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from importlib import import_module
from typing import Any

from peerd.config.settings import WebSettings
from peerd.entrypoints.process_parts import InvalidEntry, ProcessParts, import_entry, import_object
from peerd.operate.client import Client
from peerd.runtime.process.interpreter import blocked_import
from peerd.runtime.process.process_context import ProcessContext
from peerd.runtime.process.uncaught_exceptions import describe_exception
from peerd.schedules.run_executor import ScheduleRunExecutor
from peerd.shell import ProcessShell


def web(payload: Mapping[str, Any]) -> ProcessShell:
    parts = ProcessParts(payload)
    settings = parts.settings
    given = settings.web[parts.kind]
    require_server(parts.kind, given.app)
    from peerd.web_server.server import WebService  # noqa: PLC0415 - only where the extra is installed

    app = load_app(parts.kind, given)
    client = Client(parts.database, secret=settings.cluster.secret, mask=settings.access.mask)

    def attach(process: ProcessContext) -> None:
        process.find_shared = parts.make_shared_clients()
        ScheduleRunExecutor(process, import_object, parts.events)

    service = WebService(app, given, settings.access, settings.node.run_directory)
    hook = parts.load_error_hook()
    return parts.make_shell(service, client=client, error_hook=hook, notifier=client.notifier, attach=attach)


def require_server(kind: str, entry: str) -> None:
    """Check that the packages of the extra `web` are installed.

    Raises:
        InvalidEntry: one of them is not.
    """
    for package in ("uvicorn", "httptools", "websockets"):
        try:
            with blocked_import("watchfiles"):  # only uvicorn's own reloader needs it
                import_module(package)
        except ImportError as error:
            problem = f"serving it requires {package} ({error}); install peerd[web]"
            raise InvalidEntry(f"web.{kind}", entry, problem) from error


def load_app(kind: str, given: WebSettings) -> Any:
    """Return the ASGI app that a section of the configuration names.

    Raises:
        InvalidEntry: it cannot be imported or created, or is no ASGI app.
    """
    section = f"web.{kind}"
    app: Any = import_entry(section, given.app)
    if given.factory:
        try:
            app = app()
        except Exception as error:
            raise InvalidEntry(section, given.app, f"cannot be created: {describe_exception(error)}") from error
    if not callable(app):
        raise InvalidEntry(section, given.app, f"is a {type(app).__name__}, not an ASGI app: it cannot be called")
    if not _accepts_asgi_arguments(app):
        remedy = "" if given.factory else "; if it creates the app, set factory = true"
        problem = f"is no ASGI app: it does not take scope, receive and send{remedy}"
        raise InvalidEntry(section, given.app, problem)
    return app


def _accepts_asgi_arguments(app: Any) -> bool:
    try:
        signature = inspect.signature(app)
    except (TypeError, ValueError):
        return True  # unknown
    try:
        signature.bind({}, None, None)
    except TypeError:
        return False
    return True
