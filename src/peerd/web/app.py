"""The app: its routes, the client that they call, and what every answer has."""

from __future__ import annotations

from typing import Final

from fastapi import FastAPI

from peerd.operate.client import Client
from peerd.web import metrics
from peerd.web.dependencies import CLIENT_STATE
from peerd.web.log_streams import LogStreams
from peerd.web.problems import add_problem_handlers
from peerd.web.request_guard import RequestGuard
from peerd.web.routes import health, limits, nodes, queues, schedules, task_logs, tasks

API: Final = "/api/v1"
DESCRIPTION = """\
Tasks, queues, limits, nodes and schedules of a peerd cluster.

* Errors are `application/problem+json` (RFC 9457): `code` names the kind of error, `field` the option at fault.
* Ids are text, since JavaScript cannot hold all of them as numbers.
* Lists of tasks have pages: `next` of one answer is `after` of the next request.
* Times are ISO 8601 in UTC. Durations are seconds, or text such as `1h30m`.
"""


def create_app(client: Client | None = None) -> FastAPI:
    """The API as an ASGI app, to be served or mounted.

    Args:
        client: the database that it shows. None: that of the node whose web process serves it.

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
    setattr(app.state, CLIENT_STATE, client)
    for module in (tasks, task_logs, queues, limits, nodes, schedules):
        app.include_router(module.router, prefix=API)
    app.include_router(health.router)
    app.include_router(metrics.router)
    app.state.peerd_metrics = metrics.SnapshotReader()
    app.state.peerd_log_streams = LogStreams()
    add_problem_handlers(app)
    app.add_middleware(RequestGuard)
    return app
