"""The app: its routes, the client that they call, and what every answer has."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI

from peerd.config.settings import AccessSettings
from peerd.operate.client import Client
from peerd.web import metrics
from peerd.web.access.authentication import AppAccess, Authenticate
from peerd.web.access.login import LoginService
from peerd.web.arguments import API
from peerd.web.dependencies import ACCESS_STATE
from peerd.web.pages.dashboard import add_dashboard
from peerd.web.problems import ProblemDetails, add_problem_handlers
from peerd.web.request_guard import RequestGuard
from peerd.web.routes import events, files, health, log_stream, operations, rest, session, uploads
from peerd.web.streams.hub import StreamHub

DESCRIPTION = """\
Tasks, queues, limits, nodes, schedules and files of a peerd cluster.

* Errors are `application/problem+json` (RFC 9457): `code` names the kind of error, `field` the option at fault.
* Ids are text, since JavaScript cannot hold all of them as numbers.
* Lists of tasks have pages: `next` of one answer is `after` of the next request.
* Times are ISO 8601 in UTC. Durations are seconds, or text such as `1h30m`.
* A program sends a token: `Authorization: Bearer peerd_…`. A browser logs in by `POST /api/v1/session`, and sends the
  `csrf_token` of the answer in the header `X-CSRF-Token` with each request that changes something.
* Each operation needs a right of the user or the token: `view`, `enqueue`, `operate`, `read-files`, `write-files` or
  `admin`; else it answers 403.
"""


def create_app(
    client: Client | None = None,
    *,
    authenticate: Authenticate | None = None,
    access: AccessSettings | None = None,
) -> FastAPI:
    """The API as an ASGI app, to be served or mounted.

    Args:
        client: the database that it shows. None: the database of the node whose web process serves it.
        authenticate: your site's own login: a function, async or not, of Starlette's Request that returns the `Actor`
            of the request, or None. Tokens work beside it.
        access: settings such as the hosts that are allowed. None: [access] of the node whose web process serves it.

    >>> [route for route in create_app().openapi()["paths"] if route.endswith("/retry")]
    ['/api/v1/tasks/{task_id}/retry']
    """
    app = FastAPI(
        title="peerd",
        version="1",
        description=DESCRIPTION,
        docs_url=None,
        redoc_url=None,
        openapi_url=f"{API}/openapi.json",
    )
    app_access = AppAccess(client, access, authenticate)
    setattr(app.state, ACCESS_STATE, app_access)
    app.state.peerd_logins = LoginService()
    for router in (
        *rest.create_routers(),
        operations.create_router(),
        *(log_stream.router, events.router, files.router, uploads.router, session.router),
    ):
        app.include_router(router, prefix=API)
    app.include_router(health.router)
    app.include_router(metrics.router)
    app.state.peerd_metrics = metrics.SnapshotReader()
    app.state.peerd_log_streams = StreamHub()
    app.state.peerd_events = StreamHub()
    add_problem_handlers(app)
    _complete_document(app)
    add_dashboard(app)
    app.add_middleware(RequestGuard, access=app_access)
    return app


def _complete_document(app: FastAPI) -> None:
    """Describe operations and problems in the OpenAPI document when it is asked for: it takes a tenth of a second."""
    document = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            made = document()
            made["components"]["schemas"]["ProblemDetails"] = ProblemDetails.model_json_schema()
            rest.describe_routes(made)
            operations.describe_routes(made)
        return document()

    app.openapi = openapi  # type: ignore[method-assign]  # as FastAPI documents it
