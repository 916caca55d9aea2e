"""A web process: the ASGI app that the config names, in the service that serves it."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from peerd.assembly.payload import events_of, settings_of
from peerd.config.settings import WebSettings
from peerd.domain.errors import PeerdError
from peerd.runtime.service import Service
from peerd.store.database import Database


@dataclass(frozen=True, slots=True)
class WebProcess:
    """What the app finds in ``scope["state"]["peerd"]``: where it runs, and its section's options."""

    node: str
    slot: str
    kind: str
    options: Mapping[str, Any]


class BadApp(PeerdError):
    """What [web.NAME] names is not there, or is no ASGI app."""

    def __init__(self, kind: str, entry: str, problem: str) -> None:
        self.kind = kind
        super().__init__(f"[web.{kind}] {entry}: {problem}")


def web(payload: Mapping[str, Any]) -> Service:
    """The service of a process that serves a user's app."""
    settings = settings_of(payload)
    kind = str(payload["kind"])
    given = settings.web[kind]
    require_server(kind, given.app)
    from peerd.serving.server import Options  # noqa: PLC0415 - only where the extra is installed
    from peerd.serving.service import WebService  # noqa: PLC0415
    from peerd.serving.traffic import Limits  # noqa: PLC0415

    limits = Limits(given.concurrency, given.max_head, given.head_timeout, given.keep_alive)
    options = Options(
        limits=limits,
        websocket_bytes=given.max_message,
        root_path=given.root_path,
        forwarded_allow_ips=given.forwarded_allow_ips,
        access_log=given.access_log,
    )
    return WebService(
        load_app(kind, given),
        options,
        given.recycle_after,
        given.recycle_age,
        Database(settings.database.url, pool_size=1),
        events_of(payload, settings),
        lambda link: WebProcess(link.node, link.slot, link.kind, given.options),
    )


def require_server(kind: str, entry: str) -> None:
    """Refuse to begin without the packages that serving takes.

    Raises:
        BadApp: one of them is not installed.
    """
    for package in ("uvicorn", "httptools", "websockets"):
        try:
            import_module(package)
        except ImportError as error:
            problem = f"serving it takes {package} ({error}); install peerd[web]"
            raise BadApp(kind, entry, problem) from error


def load_app(kind: str, given: WebSettings) -> Any:
    """The ASGI app that a section of the config names.

    Raises:
        BadApp: it cannot be imported or made, or is no ASGI app.
    """
    app = _load(kind, given.app)
    if given.factory:
        try:
            app = app()
        except Exception as error:
            raise BadApp(kind, given.app, f"cannot be made: {type(error).__name__}: {error}") from error
    if not callable(app):
        raise BadApp(kind, given.app, f"is a {type(app).__name__}, and no ASGI app: it cannot be called")
    if problem := _not_asgi(app):
        remedy = "" if given.factory else "; if it makes the app, say factory = true"
        raise BadApp(kind, given.app, problem + remedy)
    return app


def _not_asgi(app: Any) -> str:
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


def _load(kind: str, entry: str) -> Any:
    module_name, _, attribute = entry.partition(":")
    try:
        found: Any = import_module(module_name)
    except Exception as error:
        raise BadApp(kind, entry, f"importing {module_name} failed: {type(error).__name__}: {error}") from error
    for part in attribute.split("."):
        if not hasattr(found, part):
            raise BadApp(kind, entry, f"{module_name} has no {attribute}")
        found = getattr(found, part)
    return found
