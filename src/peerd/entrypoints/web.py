"""A web process: the ASGI app that the config names, in the service that serves it."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from importlib import import_module
from typing import Any

from peerd.config.settings import WebSettings
from peerd.domain.errors import PeerdError
from peerd.entrypoints.import_string import ImportStringError, import_object
from peerd.entrypoints.payload import create_events, decode_settings, shared_clients_factory
from peerd.operate.client import Client
from peerd.runtime.observability.alert_detection import AlertingService
from peerd.runtime.process.import_path import blocked_import
from peerd.runtime.process.process_context import ProcessContext
from peerd.runtime.process.service import Service
from peerd.runtime.process.uncaught_exceptions import describe_exception
from peerd.schedules.run_executor import ScheduleRunExecutor
from peerd.store.connection.database import Database


class InvalidWebApp(PeerdError):
    """What [web.NAME] names is not there, or is no ASGI app."""

    def __init__(self, kind: str, entry: str, problem: str) -> None:
        self.kind = kind
        super().__init__(f"[web.{kind}] {entry}: {problem}")


def web(payload: Mapping[str, Any]) -> Service:
    """The service of a process that serves a user's app."""
    settings = decode_settings(payload)
    kind = str(payload["kind"])
    given = settings.web[kind]
    require_server(kind, given.app)
    from peerd.web_server.connection_tracker import ClientLimits  # noqa: PLC0415
    from peerd.web_server.recycling import RecycleLimits  # noqa: PLC0415
    from peerd.web_server.server import ServerOptions  # noqa: PLC0415 - only where the extra is installed
    from peerd.web_server.service import WebService  # noqa: PLC0415

    limits = ClientLimits(
        concurrency=given.concurrency,
        head_bytes=given.max_head,
        head_timeout=given.head_timeout,
        keep_alive=given.keep_alive,
        body_timeout=given.body_timeout,
        body_rate=given.min_body_rate,
    )
    options = ServerOptions(
        limits=limits,
        websocket_bytes=given.max_message,
        root_path=given.root_path,
        forwarded_allow_ips=given.forwarded_allow_ips,
        access_log=given.access_log,
    )
    recycle = RecycleLimits(given.recycle_after, given.recycle_age, given.recycle_memory, given.recycle_cpu)
    app = load_app(kind, given)
    events = create_events(payload, settings)
    database = Database(settings.database.url, pool_size=settings.database.pool_size)
    client = Client(database, secret=settings.cluster.secret)
    shared = shared_clients_factory(settings)

    def attach(process: ProcessContext) -> None:
        process.find_shared = shared()
        ScheduleRunExecutor(process, import_object, events)

    service = WebService(app, options, recycle, database, events, given.options, client, attach)
    return AlertingService(service, events)


def require_server(kind: str, entry: str) -> None:
    """Refuse to begin without the packages that serving takes.

    Raises:
        InvalidWebApp: one of them is not installed.
    """
    for package in ("uvicorn", "httptools", "websockets"):
        try:
            with blocked_import("watchfiles"):  # with which uvicorn's own master reloads
                import_module(package)
        except ImportError as error:
            problem = f"serving it takes {package} ({error}); install peerd[web]"
            raise InvalidWebApp(kind, entry, problem) from error


def load_app(kind: str, given: WebSettings) -> Any:
    """The ASGI app that a section of the config names.

    Raises:
        InvalidWebApp: it cannot be imported or made, or is no ASGI app.
    """
    try:
        app: Any = import_object(given.app)
    except ImportStringError as error:
        raise InvalidWebApp(kind, given.app, str(error)) from error
    if given.factory:
        try:
            app = app()
        except Exception as error:
            raise InvalidWebApp(kind, given.app, f"cannot be made: {describe_exception(error)}") from error
    if not callable(app):
        raise InvalidWebApp(kind, given.app, f"is a {type(app).__name__}, and no ASGI app: it cannot be called")
    if problem := _check_asgi_signature(app):
        remedy = "" if given.factory else "; if it makes the app, say factory = true"
        raise InvalidWebApp(kind, given.app, problem + remedy)
    return app


def _check_asgi_signature(app: Any) -> str:
    """What in its signature says that it is no app; nothing where nothing is known about it."""
    try:
        signature = inspect.signature(app)
    except (TypeError, ValueError):
        return ""
    try:
        signature.bind({}, None, None)
    except TypeError:
        return "is no ASGI app: it does not take scope, receive and send"
    return ""
