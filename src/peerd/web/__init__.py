"""The REST API of a cluster and the metrics of a node, as ASGI apps.

A node serves the API with ``[web.dashboard] app = "peerd.web:app"``; `create_app` makes one for a site of your own. A
node that shall show its metrics and nothing else has ``app = "peerd.web:metrics_app"``. Its process loads no FastAPI:
``app`` and `create_app` are loaded when they are asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from peerd.web.node_metrics import metrics_app

if TYPE_CHECKING:
    from fastapi import FastAPI

    from peerd.web.api import create_app

    app: FastAPI
    """The app of a node's web process, which takes the client of its process."""

__all__ = ["app", "create_app", "metrics_app"]


def __getattr__(name: str) -> Any:
    if name not in {"app", "create_app"}:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from peerd.web import api  # noqa: PLC0415 - FastAPI takes a second and 40 MB

    globals().update(create_app=api.create_app)
    if name == "app":
        globals().update(app=api.create_app())
    return globals()[name]
